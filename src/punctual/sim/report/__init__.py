"""What a study looks like: figures, and a page that needs nothing else. Matplotlib is imported when one is drawn."""
