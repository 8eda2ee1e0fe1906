/* empty: does nothing; what remains is what loading the library costs (system calls, faults, RSS). */
int main(void) { return 0; }
