"""The command line: each verb parses its arguments, calls one station and prints."""
