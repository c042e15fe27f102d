// Package wire is fxfer's protocol as SPEC.md in this folder describes it: the messages, the block
// header and the error codes. It encodes, decodes and checks. It reads no files and makes no
// decisions.
//
// A decoded message may come from a hostile peer. So every length is checked before it is believed.
//
// A new message is a struct with its codec in the file of its family, a constant and a row in the
// table below, and a section of SPEC.md.
package wire

import (
	"encoding/binary"
	"fmt"
)

// Version is the protocol's major version. CodeVersion refuses a peer that has another one.
const Version = 1

// Limits on what a peer may send.
const (
	MaxMessage      = 1 << 20    // bytes in a message body
	MaxFirstMessage = 16 << 10   // bytes in the body of a stream's first message
	MaxDecoded      = 4 << 20    // bytes that the lists of a message take in memory
	MaxPath         = 4096       // bytes in a path
	MaxText         = 1024       // bytes in a text for people
	MaxStrings      = 1024       // strings in a list
	maxName         = 256        // bytes in the name of a user, a group or an attribute
	maxWord         = 64         // bytes in a word that programs compare
	maxAlgorithm    = 32         // bytes in the name of an algorithm
	maxDatagram     = 65535 - 28 // bytes of UDP payload in an IPv4 packet
)

// Type identifies a message. A reader skips types that it does not know.
type Type uint8

// The types, by family. A number is never used for anything else.
const (
	TypeHello    Type = 1
	TypeJoin     Type = 2
	TypeWelcome  Type = 3
	TypeRefuse   Type = 4
	TypePing     Type = 15
	TypePong     Type = 16
	TypeStreams  Type = 17
	TypeRetire   Type = 34
	TypePrefer   Type = 35
	TypeLimit    Type = 53
	TypeSiblings Type = 41
	TypeSample   Type = 18

	TypeManifest    Type = 5
	TypeEntries     Type = 6
	TypeEndManifest Type = 7
	TypeEndEntry    Type = 11
	TypeEntryFailed Type = 12

	TypeAnswers  Type = 8
	TypeCompared Type = 19
	TypePlaced   Type = 13
	TypeWarning  Type = 24
	TypeFinished Type = 14

	TypeWritten Type = 9
	TypeResend  Type = 10

	TypePick   Type = 29
	TypePieces Type = 30
	TypeChunks Type = 31
	TypeAsk    Type = 32
	TypeEmpty  Type = 33

	TypePrune   Type = 20
	TypeFolder  Type = 21
	TypeExtra   Type = 22
	TypeRemoved Type = 23

	TypeDigests Type = 25

	TypeTest   Type = 26
	TypeOpened Type = 27
	TypeVolley Type = 28

	TypeOperation Type = 36
	TypeContent   Type = 37
	TypeOperated  Type = 38

	TypeCopyRequest Type = 39
	TypeCopyState   Type = 40
	TypeRelay       Type = 48
	TypeRelayed     Type = 49
	TypeAwait       Type = 50
	TypeCalled      Type = 51
	TypeMeet        Type = 52
)

// messages is the table of all messages: the name of each type, and how to make an empty message.
var messages = [...]struct {
	name  string
	empty func() Message
}{
	TypeHello:    {"Hello", func() Message { return new(Hello) }},
	TypeJoin:     {"Join", func() Message { return new(Join) }},
	TypeWelcome:  {"Welcome", func() Message { return new(Welcome) }},
	TypeRefuse:   {"Refuse", func() Message { return new(Refuse) }},
	TypePing:     {"Ping", func() Message { return new(Ping) }},
	TypePong:     {"Pong", func() Message { return new(Pong) }},
	TypeStreams:  {"Streams", func() Message { return new(Streams) }},
	TypeRetire:   {"Retire", func() Message { return new(Retire) }},
	TypePrefer:   {"Prefer", func() Message { return new(Prefer) }},
	TypeLimit:    {"Limit", func() Message { return new(Limit) }},
	TypeSiblings: {"Siblings", func() Message { return new(Siblings) }},
	TypeSample:   {"Sample", func() Message { return new(Sample) }},

	TypeManifest:    {"Manifest", func() Message { return new(Manifest) }},
	TypeEntries:     {"Entries", func() Message { return new(Entries) }},
	TypeEndManifest: {"EndManifest", func() Message { return new(EndManifest) }},
	TypeEndEntry:    {"EndEntry", func() Message { return new(EndEntry) }},
	TypeEntryFailed: {"EntryFailed", func() Message { return new(EntryFailed) }},

	TypeAnswers:  {"Answers", func() Message { return new(Answers) }},
	TypeCompared: {"Compared", func() Message { return new(Compared) }},
	TypePlaced:   {"Placed", func() Message { return new(Placed) }},
	TypeWarning:  {"Warning", func() Message { return new(Warning) }},
	TypeFinished: {"Finished", func() Message { return new(Finished) }},

	TypeWritten: {"Written", func() Message { return new(Written) }},
	TypeResend:  {"Resend", func() Message { return new(Resend) }},

	TypePick:   {"Pick", func() Message { return new(Pick) }},
	TypePieces: {"Pieces", func() Message { return new(Pieces) }},
	TypeChunks: {"Chunks", func() Message { return new(Chunks) }},
	TypeAsk:    {"Ask", func() Message { return new(Ask) }},
	TypeEmpty:  {"Empty", func() Message { return new(Empty) }},

	TypePrune:   {"Prune", func() Message { return new(Prune) }},
	TypeFolder:  {"Folder", func() Message { return new(Folder) }},
	TypeExtra:   {"Extra", func() Message { return new(Extra) }},
	TypeRemoved: {"Removed", func() Message { return new(Removed) }},

	TypeDigests: {"Digests", func() Message { return new(Digests) }},

	TypeTest:   {"Test", func() Message { return new(Test) }},
	TypeOpened: {"Opened", func() Message { return new(Opened) }},
	TypeVolley: {"Volley", func() Message { return new(Volley) }},

	TypeOperation: {"Operation", func() Message { return new(Operation) }},
	TypeContent:   {"Content", func() Message { return new(Content) }},
	TypeOperated:  {"Operated", func() Message { return new(Operated) }},

	TypeCopyRequest: {"CopyRequest", func() Message { return new(CopyRequest) }},
	TypeCopyState:   {"CopyState", func() Message { return new(CopyState) }},
	TypeRelay:       {"Relay", func() Message { return new(Relay) }},
	TypeRelayed:     {"Relayed", func() Message { return new(Relayed) }},
	TypeAwait:       {"Await", func() Message { return new(Await) }},
	TypeCalled:      {"Called", func() Message { return new(Called) }},
	TypeMeet:        {"Meet", func() Message { return new(Meet) }},
}

// known reports whether the type has a row in the table.
func (t Type) known() bool { return int(t) < len(messages) && messages[t].empty != nil }

// String returns the message's name in SPEC.md.
func (t Type) String() string {
	if !t.known() {
		return fmt.Sprintf("type %d", uint8(t))
	}
	return messages[t].name
}

// Message is one message of the protocol.
type Message interface {
	Type() Type
	encode(*encoder)
	decode(*decoder)
}

const headerLen = 5 // bytes of type and length

// Append appends the encoded message to b.
func Append(b []byte, m Message) []byte {
	start := len(b)
	e := encoder{append(b, byte(m.Type()), 0, 0, 0, 0)}
	m.encode(&e)
	binary.BigEndian.PutUint32(e.b[start+1:], uint32(len(e.b)-start-headerLen))
	return e.b
}

// Decode decodes the body of a message. It returns nil without an error for an unknown type, and
// ignores bytes after the known fields, since a newer peer may have added fields.
func Decode(t Type, body []byte) (Message, error) { return decode(t, body, nil) }

// decode is Decode into room for lists, nil for none.
func decode(t Type, body []byte, room *lists) (Message, error) {
	if !t.known() {
		return nil, nil
	}
	m := messages[t].empty()
	d := decoder{b: body, room: MaxDecoded, lists: room}
	m.decode(&d)
	if d.err != nil {
		return nil, fmt.Errorf("message %s: %w", t, d.err)
	}
	return m, nil
}
