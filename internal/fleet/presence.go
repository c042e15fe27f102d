package fleet

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
)

// presenceSubject is where workers say that they are there. Nothing keeps these messages.
const presenceSubject = "fxfer.v1.worker"

const (
	// presentEvery is how often a worker says that it is there.
	presentEvery = 5 * time.Second
	// presentFor is how long one counts that has said so.
	presentFor = 4 * presentEvery
	// maxWorkers bounds what a monitor keeps of workers: members can publish what they like.
	maxWorkers = 10_000
)

// Presence is what a worker says of itself.
type Presence struct {
	Version int       `json:"version"`
	Name    string    `json:"name"`
	Began   time.Time `json:"began"`
}

// announce says that the worker is there, until ctx is done.
func (w *Worker) announce(ctx context.Context, conn *nats.Conn) {
	text, err := json.Marshal(Presence{Version: Version, Name: w.Name, Began: time.Now().UTC()})
	for ok := err == nil; ok; ok = pause(ctx, presentEvery) {
		_ = conn.Publish(presenceSubject, text) // the next one follows soon
	}
}
