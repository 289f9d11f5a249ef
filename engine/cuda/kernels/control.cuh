// What one round knows, in device memory: every kernel of a captured round reads positions and tokens from here, so one graph
// serves every position. Mirrored by `src/control.rs`, which checks each offset.
#pragma once
#include <stdint.h>

// Rows of a round: the fed token and up to six drafts, and one to spare.
#define CONTROL_ROWS 8
// No id: nothing could be chosen, or the token before the first one.
#define CONTROL_NONE 0xffffffffu

// Where a call's rows stand: what every kernel along the sequence is given a pointer to.
struct At {
  uint32_t position;  // of row 0
  uint32_t kept;      // rows of the last round that are part of the state but not yet of S
  uint32_t parity;    // the log this call writes; the other one holds the last round's rows
  uint32_t spare;
};

struct Control {
  At target;                          // the target's rows
  At seed;                            // the draft head's rows behind the target's
  At chain;                           // the draft head's next chain step
  uint32_t rows;                      // rows verified: 1 + drafts
  uint32_t stop_count;
  uint32_t generation;                // names the round to the host
  uint32_t accepted;                  // drafts accepted
  uint32_t next;                      // chosen behind the last kept row
  uint32_t bad_row;                   // first row with a logit that is no number, or CONTROL_NONE
  uint32_t drafted;                   // drafts chained so far
  uint32_t chain_token;               // what the next chain step joins
  uint32_t history[CONTROL_ROWS];     // tokens before row 0, the newest last: they and `tokens` are one run
  uint32_t tokens[CONTROL_ROWS];      // the fed token, then the drafts
  uint32_t followers[CONTROL_ROWS];   // the token behind each kept row; 0 behind the others, whose head rows are leftovers
  uint32_t drafts[CONTROL_ROWS];
  uint32_t stops[CONTROL_ROWS];       // acceptance ends behind one of these
};

// What the host waits for, in mapped host memory. `generation` is written last.
struct Outcome {
  uint32_t generation;
  uint32_t accepted;
  uint32_t next;
  uint32_t bad_row;
  uint32_t drafts[CONTROL_ROWS];
};
