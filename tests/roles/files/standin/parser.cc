int statements_parsed() { return 0; }
