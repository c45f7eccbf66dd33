// SPDX-License-Identifier: Apache-2.0
// OpenAI's wire format, as plain functions over values: no threads, no sockets, no engine.
#pragma once
#include "rapt/apps/server/protocol_error.h"    // IWYU pragma: export
#include "rapt/apps/server/protocol_openapi.h"  // IWYU pragma: export
#include "rapt/apps/server/protocol_reply.h"    // IWYU pragma: export
#include "rapt/apps/server/protocol_request.h"  // IWYU pragma: export
