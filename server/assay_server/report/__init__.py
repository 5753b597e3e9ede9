"""Report documents as pages for people: HTML, Markdown, and the pictures in them."""
