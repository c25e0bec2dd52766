// An object file of 16 MB, too large for the small disk of a test.
char large[16 << 20] = {1};
