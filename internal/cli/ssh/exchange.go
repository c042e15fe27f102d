package ssh

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// Request is what a one-time server is asked for. It is the argument of the command that ssh runs,
// because ssh brings that a round trip earlier than standard input. One that is too long for an
// argument, or that follows an upload, is the first line on standard input.
type Request struct {
	Protocol uint64 `json:"protocol"` // fxfer.ProtocolVersion of the client
	Client   string `json:"client"`   // pin of the only client that is admitted
	// Paths are absolute, or below the home folder. Only one that ends with a slash, or stands alone,
	// means the folder that a link leads to rather than the link.
	Paths  []string `json:"paths"`
	Write  bool     `json:"write,omitempty"`
	Dir    string   `json:"dir,omitempty"`   // the folder to share, as an earlier answer had it; "" is the deepest with all paths
	Share  string   `json:"share,omitempty"` // its name; only with Dir
	Ports  Ports    `json:"ports"`           // to listen on one of them; zero is any port
	Crypto bool     `json:"crypto,omitzero"` // StandardCrypto of the client
	// Uploaded says that the program was uploaded for this use: it removes itself.
	Uploaded bool `json:"uploaded,omitempty"`
}

// Answer is what the server says: a line on its standard output.
type Answer struct {
	Protocol uint64   `json:"protocol"`
	Pin      string   `json:"pin,omitempty"`
	Port     int      `json:"port,omitempty"`
	Address  string   `json:"address,omitempty"` // of the host, as ssh reached it; "" if unknown
	Calls    bool     `json:"calls,omitempty"`   // it knows the client's address, and can connect to it
	Share    string   `json:"share,omitempty"`
	Dir      string   `json:"dir,omitempty"`   // the folder that is shared
	Empty    bool     `json:"empty,omitempty"` // none of the paths has anything yet
	Paths    []string `json:"paths,omitempty"` // in the share, for each path of the request
	Error    string   `json:"error,omitempty"` // why there is no server; the fields above are not set
	Kind     string   `json:"kind,omitempty"`  // of the error, as exit.Classify names it
}

// mark begins the lines that are for the client: a login shell may have printed others before.
const mark = "fxfer-once "

const (
	maxLine  = 1 << 20 // of a request or an answer, bytes
	maxNoise = 1 << 20 // before an answer, bytes
	// maxWord is the longest request that is an argument, in bytes. The shell of Windows takes lines
	// of 8,191 bytes.
	maxWord = 4 << 10
)

// word returns the request as an argument that no shell changes; "" if it is too long for that.
func (q *Request) word() string {
	text, err := json.Marshal(q)
	if word := base64.RawURLEncoding.EncodeToString(text); err == nil && len(word) <= maxWord {
		return word
	}
	return ""
}

// ParseRequest reads a request that is an argument.
func ParseRequest(word string) (*Request, error) {
	text, err := base64.RawURLEncoding.DecodeString(word)
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	return parseRequest(text)
}

func parseRequest(text []byte) (*Request, error) {
	q := new(Request)
	if err := json.Unmarshal(text, q); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	return q, nil
}

// WriteRequest writes a request.
func WriteRequest(w io.Writer, r *Request) error {
	text, err := json.Marshal(r)
	if err == nil {
		_, err = w.Write(append(text, '\n'))
	}
	return err
}

// ReadRequest reads a request.
func ReadRequest(r *bufio.Reader) (*Request, error) {
	line, err := readLine(r, maxLine)
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	return parseRequest(line)
}

// WriteAnswer writes an answer.
func WriteAnswer(w io.Writer, a *Answer) error {
	text, err := json.Marshal(a)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", mark, text)
	}
	return err
}

// CallID is what a connection begins with that the server makes, so that the client knows what it
// is for.
type CallID [16]byte

// Call asks the server to connect to a port of the client.
type Call struct {
	Port int
	ID   CallID
}

const callFormat = "call %d %x"

// line returns the line that asks for a call.
func (c *Call) line() string { return fmt.Sprintf(callFormat+"\n", c.Port, c.ID) }

// ReadCall reads a line of the client. The call is nil if the line only says that the client is
// there.
func ReadCall(r *bufio.Reader) (*Call, error) {
	line, err := readLine(r, maxLine)
	if err != nil {
		return nil, err
	}
	var c Call
	var id []byte
	if n, _ := fmt.Sscanf(string(line), callFormat, &c.Port, &id); n < 2 || len(id) != len(c.ID) || c.Port < 1 || c.Port > 65535 {
		return nil, nil //nolint:nilnil // see above
	}
	c.ID = CallID(id)
	return &c, nil
}

const failedCall = "failed call "

// WriteFailed says that a call has failed.
func WriteFailed(w io.Writer, id CallID) error {
	_, err := fmt.Fprintf(w, "%s%s%x\n", mark, failedCall, id)
	return err
}

// parseFailed returns the call that has failed, if line says that.
func parseFailed(line []byte) (id CallID, ok bool) {
	text, ok := bytes.CutPrefix(line, []byte(failedCall))
	if !ok || len(text) != 2*len(id) {
		return id, false
	}
	_, err := hex.Decode(id[:], text)
	return id, err == nil
}

// errNoAnswer says that the other side ended before it answered.
var errNoAnswer = errors.New("no answer")

// readMarked returns what follows the mark in the next line that has it.
func readMarked(r *bufio.Reader) ([]byte, error) {
	for noise := 0; noise <= maxNoise; {
		line, err := readLine(r, maxLine)
		if err != nil {
			return nil, errNoAnswer
		}
		if text, ok := bytes.CutPrefix(line, []byte(mark)); ok {
			return text, nil
		}
		noise += len(line) + 1
	}
	return nil, errNoAnswer
}

// parseAnswer reads an answer to q. Only one of the same protocol version is checked.
func parseAnswer(text []byte, q *Request) (*Answer, error) {
	a := new(Answer)
	if err := json.Unmarshal(text, a); err != nil {
		return nil, fmt.Errorf("read the answer of fxfer over there: %w", err)
	}
	if a.Error == "" && a.Protocol == q.Protocol && (len(a.Paths) != len(q.Paths) || a.Port < 1 || a.Port > 65535) {
		return nil, errors.New("read the answer of fxfer over there: it is not complete")
	}
	// The host must not lead the client to itself or to its neighbours. Where ssh knows the host by
	// such an address, that comes from there. A zone would be one of that host.
	if ip, err := netip.ParseAddr(a.Address); err != nil || ip.Zone() != "" || !ip.Unmap().IsGlobalUnicast() {
		a.Address = ""
	}
	return a, nil
}

// readLine reads a line of at most limit bytes, and returns it without its end.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > limit {
			return nil, errors.New("the line is too long")
		}
		if err == nil {
			return bytes.TrimRight(line, "\r\n"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// Ports is a range of ports. The zero Ports is any port.
type Ports struct {
	First int `json:"first,omitempty"`
	Last  int `json:"last,omitempty"`
}

// parsePorts reads a port, a range such as 50000-50100, or "any".
func parsePorts(s string) (Ports, error) {
	if s == "any" {
		return Ports{}, nil
	}
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	low, err := strconv.ParseUint(first, 10, 16)
	high, failed := strconv.ParseUint(last, 10, 16)
	if err != nil || failed != nil || low == 0 || low > high {
		return Ports{}, fmt.Errorf("%q is not a range of ports such as 50000-50100", s)
	}
	return Ports{First: int(low), Last: int(high)}, nil
}
