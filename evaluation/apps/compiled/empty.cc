// empty: what a compiler links to every program.
int main() {}
