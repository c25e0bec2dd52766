int rows_stored() { return 0; }
