"""The JSON API of the observer: rows of what may be asked, and what is made of a request."""
