"""The rules of sending: encoding, frames, window, acknowledgements, transactions."""
