// SPDX-License-Identifier: Apache-2.0
// Where the program starts; what it does is in main.cc.
int rapt_main(int argc, char** argv);

int main(int argc, char** argv) { return rapt_main(argc, argv); }
