package server

import (
	"context"

	"github.com/fxfer/fxfer/internal/wire"
)

// handler serves the sessions of one intent.
type handler interface {
	// serve runs one session and returns when it is over. An error that is a wire.Error of this
	// side refuses the client.
	serve(ctx context.Context) error
}

// otherIntent is the name of intents that have none of their own.
const otherIntent = "other"

// intents has a row for each intent that the server knows: its name in logs and metrics, and the
// constructor of what serves it.
var intents = []struct {
	intent wire.Intent
	name   string
	new    func(*request) handler
}{
	{wire.Push, "receive", newReceiving},
	{wire.Pull, "send", newSending},
	{wire.Store, "store", newStoring},
	{wire.Series, "series", newSeriesListing},
	{wire.Expire, "expire", newExpiry},
	{wire.List, "list", newListing},
	{wire.Verify, "verify", newVerification},
	{wire.Probe, "probe", newProbing},
	{wire.Scrub, "scrub", newScrubbing},
	{wire.Files, "files", newFileWork},
	{wire.Early, "early", newReceiving},
	{wire.Copy, "copy", newReceiving},
	{wire.Copies, "copies", newCopyWork},
	{wire.Ranges, "ranges", newReceiving},
}

// Intents returns what sessions are for, as a server sees it, and the doors. Each name occurs once.
func Intents() (names []string) {
	for _, x := range intents {
		names = append(names, x.name)
	}
	return append(names, doors...)
}

func intentName(i wire.Intent) string {
	for _, x := range intents {
		if x.intent == i {
			return x.name
		}
	}
	return otherIntent
}

// serve serves the session by its intent.
func (q *request) serve(ctx context.Context) error {
	for _, x := range intents {
		if x.intent == q.hello.Intent {
			return x.new(q).serve(ctx)
		}
	}
	return wire.Errorf(wire.CodeProtocol, "the server does not know intent %d", q.hello.Intent)
}
