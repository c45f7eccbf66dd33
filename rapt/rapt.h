// SPDX-License-Identifier: Apache-2.0
// Rapt as a library: open models and run them, train recipes, look inside. docs/library.md has an example
// of each.
//
// Model, Session, Training and Device are handles: small values that share what they stand for, so a copy is
// the same model, and a model lives as long as any of its sessions. Models and devices may be used by any
// number of threads at once; a session or a training by one thread at a time. No bit of a result depends on
// threads, on neighbours in a pass, or on who else computes.
// What fails throws rapt::Error (rapt/error.h).
#pragma once
#include "rapt/api/device.h"
#include "rapt/api/look.h"
#include "rapt/api/model.h"
#include "rapt/api/session.h"
#include "rapt/api/train.h"
#include "rapt/error.h"
