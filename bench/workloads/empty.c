/* empty: does nothing. What it costs is the cost of loading the library (system calls, faults, RSS). */
/* SPDX-License-Identifier: MIT */
int main(void) { return 0; }
