// SPDX-License-Identifier: Apache-2.0
extern "C" long plugin();

int main() { return plugin() == 3 * 256 ? 0 : 1; }
