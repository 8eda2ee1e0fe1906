/* empty: does nothing; what remains is what loading the library costs (system calls, faults, RSS). */
/* SPDX-License-Identifier: MIT */
int main(void) { return 0; }
