/* Compiles the headers that most tests include, once for all. */
