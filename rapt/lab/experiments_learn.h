// SPDX-License-Identifier: Apache-2.0
// The experiments that train small models; the table in experiments.cc names them.
#pragma once
#include "rapt/lab/experiment.h"

namespace rapt {

LabResult sink(const Lab& lab);                 // the attention sink: when it emerges and what removes it
// The first token's large activations, with and without the sink.
LabResult massive(const Lab& lab);
LabResult quant(const Lab& lab);                // what they cost when activations become int8
// Window attention, kept first tokens, cache against true positions.
LabResult streaming_toy(const Lab& lab);
LabResult gate(const Lab& lab);                 // G1..G5, forms and controls
LabResult overfit(const Lab& lab);              // whether less sink means more over-fitting
LabResult qk_norm(const Lab& lab);              // logit growth at high learning rates
LabResult v_norm(const Lab& lab);
LabResult rms_vs_layer(const Lab& lab);
LabResult batchnorm(const Lab& lab);            // small batches, other lengths, the leak from later tokens
LabResult heads(const Lab& lab);                // one against many at equal size
LabResult mla(const Lab& lab);  // one latent per token against shared keys and values
LabResult moe(const Lab& lab);  // experts against dense nets, balance with and without loss
LabResult long_distance(const Lab& lab);  // gradient over distance, recurrent against attention
LabResult rnn(const Lab& lab);  // gradients of a plain recurrent cell by the size of its matrix
LabResult mqa_long(const Lab& lab);  // shared keys and values on long contexts, at high rates
LabResult no_norm(const Lab& lab);  // no norm at all: sizes, gradients, rates
LabResult norm_race(const Lab& lab);  // pre- against post-norm over rate, start and depth
LabResult depth(const Lab& lab);  // what each layer is worth: layers left out
LabResult bias_stability(const Lab& lab);  // biases at rising learning rates
LabResult norm_place_training(const Lab& lab);  // pre- and post-norm, with and without warm-up
// MHA, GQA, MQA at equal size; conversion by mean and up-training
LabResult gqa_quality(const Lab& lab);
LabResult score_quality(const Lab& lab);  // dot, scaled, additive, cosine, distance
// Loss at one, two and four times the trained length.
LabResult positions_extrapolation(const Lab& lab);

}  // namespace rapt
