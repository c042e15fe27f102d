package fleet

import "github.com/fxfer/fxfer/pkg/fxfer"

// weightOf is how much a job of a priority counts beside others: it has so many times the workers, and
// of a line each of its workers so many times the rate. Without a priority, it is normal.
var weightOf = map[fxfer.Priority]int64{fxfer.PriorityLow: 1, fxfer.PriorityNormal: 4, "": 4, fxfer.PriorityHigh: 16}

// priorityKey is where the queue of a job has its priority.
const priorityKey = "fxfer-priority"
