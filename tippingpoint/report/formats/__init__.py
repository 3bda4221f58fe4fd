"""A report's document as HTML, Markdown and JUnit."""
