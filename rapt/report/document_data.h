// SPDX-License-Identifier: Apache-2.0
// Documents as they are kept in files and read again: every text with its name and values, so that it can
// be said in any language (document_json is what programs read: English).
#pragma once
#include "rapt/report/document.h"

namespace rapt {

Json document_data(const Document& document);
Document document_from(const Json& data);  // fails where it is none
Json chart_data(const Chart& chart);
Json heat_data(const HeatMap& map);  // without a backdrop

}  // namespace rapt
