// A later error of the same variant, which only distracts.
int after() { return another_missing_name; }
