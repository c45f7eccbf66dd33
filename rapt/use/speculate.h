// SPDX-License-Identifier: Apache-2.0
// Guesses at the next tokens of an answer, and whether their rows are worth computing beside the row that
// must be. A pass reads an answer's last token and some guesses behind it; tokens are then chosen row by row
// as ever, and the first one that differs from its guess makes the rows behind it void. So no bit of an
// answer depends on anything here: neither on what is guessed nor on what was learned of times.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "rapt/base/error.h"

namespace rapt {

enum class Speculate {
  off,
  lookup,  // guesses are what the text said before behind the same tokens
  draft,  // … or what a smaller model says
};

// A guessed token. `kind`: how sure the guess is, as a class whose hits are counted.
struct Guess {
  std::int32_t id = -1;
  int kind = 0;
};

// Of look-ups by the tokens that agree, then of draft models by the probability they give their token.
// The last one is any of a draft model.
inline constexpr int kLookUpKinds = 7, kDraftKinds = 6, kAnyDraft = kLookUpKinds + kDraftKinds,
                     kGuessKinds = kAnyDraft + 1;
inline constexpr int kKnown = -1;  // no guess: Request::known
int lookup_kind(Dim agree);
int draft_kind(double probability);

// How often guesses of each kind were right, of late.
class HitRates {
 public:
  void add(int kind, bool hit, double most);  // `most`: about as many as are remembered
  // Of one answer, with those of all answers where it has few, and an assumption where they have few.
  static double of(const HitRates& answer, const HitRates& all, int kind);

 private:
  std::array<double, kGuessKinds> tried_{}, hit_{};
};

// A text as it grows: where its last tokens stood before, and what came then. A token costs a few array
// accesses and at most 24 bytes.
class LookUp {
 public:
  static constexpr Dim kLeast = 3,
                       kMostAgree = 32;  // tokens that agree: at least, and as far as it is looked
  Dim size() const { return static_cast<Dim>(text_.size()); }
  void push(std::int32_t id);
  // Of the earlier places whose last tokens are the text's last ones, the one where most agree (the latest
  // of equals), and what followed there: `most` tokens, which may run into the guesses themselves. None: the
  // text says nothing new.
  std::vector<Guess> guess(Dim most) const;

 private:
  static constexpr int kMostPlaces = 24;  // that are looked at
  std::size_t slot(std::size_t end) const;
  void link(std::size_t end);

  std::vector<std::int32_t> text_, before_;  // before_: the place before with the same hash of three tokens
  std::vector<std::int32_t> last_;  // by that hash
};

// What passes that only write take by their number of rows, in units that drift with the machine's speed and
// the texts' lengths.
class PassTimes {
 public:
  static constexpr Dim kMost = 128;
  void learn(Dim rows, double seconds);
  bool knows(Dim rows) const { return rows > 0 && rows <= kMost && known_[index(rows)].count > 0; }
  // 0: nothing is known. Between two that are known a line; beyond them its slope, or a guess at it.
  double at(Dim rows) const;
  // Rows that may be tried next: about twice as many as were.
  Dim reach() const;
  double unit() const { return unit_; }  // seconds

 private:
  struct Known {
    double ratio = 0;
    int count = 0;
  };
  static std::size_t index(Dim rows) { return static_cast<std::size_t>(rows - 1); }
  std::array<Known, kMost> known_{};
  double unit_ = 0;  // seconds
  Dim most_ = 0;  // largest that is known
};

// How many tokens a draft model should say ahead, at most `most`, each right with this chance if those before
// it are: of `texts` answers, `rows` rows without guesses, where it takes so many seconds to say one of each.
// 0: the time is better spent without it. `gain`: how many times faster tokens come, when more rows than may
// be tried now have been.
Dim draft_length(double chance, const PassTimes& times, Dim rows, Dim texts, double seconds, Dim most,
                 double& gain);

// How many guesses of each answer a pass takes. `chances[a][i]`: that guess i of answer a is right when those
// before it are. `rows`: of the pass without guesses, all of answers that write; `most`: guesses in all.
// Counts for 0 where none pays: tokens per second must rise by a few percent.
class SpeculationPlan {
 public:
  std::vector<Dim> plan(std::span<const std::vector<double>> chances, const PassTimes& times, Dim rows,
                        Dim most);

 private:
  // Where times say no to guesses that would pay if rows were cheap, they are measured again now and then.
  int refused_ = 0, patience_ = kPatience;
  static constexpr int kPatience = 128, kMostPatience = 8192;
};

}  // namespace rapt
