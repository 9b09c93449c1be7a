"""Published systems, one folder each, found by name through entry points; nothing else imports them."""
