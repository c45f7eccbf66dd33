// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them. Shared by the report and the page of `rapt serve`.
export function number(x, none = '–') {
  if (!Number.isFinite(x)) return none;
  const size = Math.abs(x);
  if (size >= 1e5 || (size > 0 && size < 5e-4)) return x.toExponential(1);
  return x.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}
