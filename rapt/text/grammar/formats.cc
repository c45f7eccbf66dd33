// SPDX-License-Identifier: Apache-2.0
// Formats as patterns: RFC 3339 (dates, times, durations), 5321 (mail), 1123 (hosts), 2673 and 4291
// (addresses), 4122 (UUIDs), 3986 (URIs).
#include "rapt/text/grammar/formats.h"

#include <array>

namespace rapt {
namespace {

using Text = std::string;

Text group(const Text& alternatives) { return "(?:" + alternatives + ")"; }

Text date() {
  const Text year = group(R"(\d{3}[1-9]|\d{2}[1-9]\d|\d[1-9]\d{2}|[1-9]\d{3})");
  const Text leap = group(R"(\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)");
  const Text day = group(
      "(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"
      "02-(?:0[1-9]|1\\d|2[0-8])");
  return group(year + "-" + day + "|" + leap + "-02-29");
}

Text time() { return R"((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d))"; }

Text duration() {
  const Text day = R"(\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)";
  const Text hour = "T" + group(R"(\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)");
  return "P" + group(R"(\d+W|)" + hour + "|" + group(day) + group(hour) + "?");
}

Text hostname() {
  const Text label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  return label + group("\\." + label) + "*";
}

Text ipv4() {
  const Text byte = R"((?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
  return byte + group("\\." + byte) + "{3}";
}

Text ipv6() {
  const Text h = "[0-9A-Fa-f]{1,4}", part = group(h + ":"), last = group(h + ":" + h + "|" + ipv4());
  Text all = part + "{6}" + last + "|::" + part + "{5}" + last;
  const auto before = [&](int n) { return group(part + "{0," + std::to_string(n) + "}" + h) + "?::"; };
  for (int n = 0; n <= 4; ++n) {
    const int rest = 4 - n;
    all += "|" + before(n) + (rest > 0 ? part + "{" + std::to_string(rest) + "}" : Text()) + last;
  }
  return group(all + "|" + before(5) + h + "|" + before(6));
}

constexpr const char* kBeyondAscii = "\u00A0-\U0010FFFF";

Text email(const Text& more) {
  const Text atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" + more + "-]+";
  const Text quoted = R"("(?:[ !#-\[\]-~)" + more + R"(]|\\[ -~])*")";
  const Text host = more.empty() ? hostname() : "[A-Za-z0-9" + more + "]+(?:[.-][A-Za-z0-9" + more + "]+)*";
  return group(atom + group("\\." + atom) + "*|" + quoted) + "@" +
         group(host + "|\\[" + group(ipv4() + "|IPv6:" + ipv6()) + "\\]");
}

Text uuid() {
  const Text h = "[0-9A-Fa-f]";
  return h + "{8}-" + h + "{4}-" + h + "{4}-" + h + "{4}-" + h + "{12}";
}

// `more`: characters besides those of ASCII. relative: without a scheme, too.
Text uri(const Text& more, bool relative) {
  const Text percent = "%[0-9A-Fa-f]{2}", plain = "A-Za-z0-9._~!$&'()*+,;=\\-" + more;
  const Text user = group("[" + plain + ":]|" + percent), name = group("[" + plain + "]|" + percent);
  const Text character = group("[" + plain + ":@]|" + percent),
             tail = group("[" + plain + ":@/?]|" + percent);
  const Text path = "(?:/" + character + "*)*";
  const Text authority =
      "//" + group(user + "*@") + "?" + group("\\[" + ipv6() + "\\]|" + name + "*") + "(?::\\d*)?";
  const Text rooted = authority + path + "|/" + group(character + "+" + path) + "?|";
  Text whole = "[A-Za-z][A-Za-z0-9+.-]*:" + group(rooted + character + "+" + path + "|");
  // Without a scheme the first part holds no ':'.
  if (relative)
    whole = group(whole + "|" + group(rooted + group("[" + plain + "@]|" + percent) + "+" + path + "|"));
  return whole + "(?:\\?" + tail + "*)?(?:#" + tail + "*)?";
}

Text pointer() { return "(?:/(?:[^~/]|~[01])*)*"; }

Text uri_template() {
  const Text letter = group("[A-Za-z0-9_]|%[0-9A-Fa-f]{2}");
  const Text name = letter + "+" + group("\\." + letter + "+") + "*(?::[1-9]\\d{0,3}|\\*)?";
  return "(?:[!#$&(-;=?-\\[\\]_a-z~" + Text(kBeyondAscii) + "]|%[0-9A-Fa-f]{2}|\\{[+#./;?&=,!@|]?" + name +
         group("," + name) + "*\\})*";
}

struct Format {
  std::string_view name;
  Text (*pattern)();
};
constexpr std::array<Format, 17> kFormats = {{
    {"date-time", [] { return date() + "[Tt]" + time(); }},
    {"date", date},
    {"time", time},
    {"duration", duration},
    {"email", [] { return email(""); }},
    {"idn-email", [] { return email(kBeyondAscii); }},
    {"hostname", hostname},
    {"ipv4", ipv4},
    {"ipv6", ipv6},
    {"uuid", uuid},
    {"uri", [] { return uri("", false); }},
    {"uri-reference", [] { return uri("", true); }},
    {"iri", [] { return uri(kBeyondAscii, false); }},
    {"iri-reference", [] { return uri(kBeyondAscii, true); }},
    {"uri-template", uri_template},
    {"json-pointer", pointer},
    {"relative-json-pointer", [] { return "(?:0|[1-9]\\d*)(?:#|" + pointer() + ")"; }},
}};

}  // namespace

std::string format_pattern(std::string_view format) {
  for (const Format& f : kFormats)
    if (f.name == format) return f.pattern();
  return "";
}

std::string format_names() {
  std::string names;
  for (const Format& f : kFormats) names += (names.empty() ? "" : ", ") + std::string(f.name);
  return names;
}

}  // namespace rapt
