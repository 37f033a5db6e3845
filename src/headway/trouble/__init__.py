"""Trouble made to order: a test bench of slow consumers for any broker, with healthy ones beside them."""
