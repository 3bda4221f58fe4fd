"""Reports: a run's document (document.py) and its views as HTML, Markdown, JSON and JUnit."""
