"""`python -m tippingpoint.collect`: see reports.py."""

from tippingpoint.collect.reports import main

if __name__ == "__main__":
    main()
