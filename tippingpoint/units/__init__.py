"""One run of many units: what they tell each other, and how their parts become one."""
