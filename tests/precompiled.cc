/* So that what most tests include is compiled once. */
/* SPDX-License-Identifier: MIT */
