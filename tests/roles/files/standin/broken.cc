// The first error of the variant "broken".
int lost_brace() { return no_such_name; }
