/* Compiles the headers that most tests include, once for all. */
/* SPDX-License-Identifier: MIT */
