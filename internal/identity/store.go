// Package identity keeps who this host is and whom it trusts: its own Ed25519 key, the servers it
// knows, the clients it admits, and the invitations it has made.
//
// Keys and lists are plain text files in one folder. People may read and edit them. An error that a
// person can repair has a method Hint() string with the remedy. Find it with errors.As.
package identity

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Names of the files inside a Store's folder.
const (
	keyFile      = "key.pem"
	serversFile  = "known_servers"
	clientsFile  = "authorized_clients"
	invitesFile  = "invitations"
	usersFile    = "door_users"
	hostKeyFile  = "ssh_host_key.pem"
	doorCertFile = "door_certificate.pem"
	lockFile     = ".lock"
)

// ownFolder is the remedy where there is no folder for the state.
const ownFolder = "set FXFER_HOME to a folder of your own"

// Home returns the absolute path of the folder for fxfer's identity and state, and makes it with
// mode 0700 if it is missing. The folder is FXFER_HOME if that is set, and otherwise the folder
// fxfer in the user's configuration folder.
func Home() (string, error) {
	dir := os.Getenv("FXFER_HOME")
	if dir == "" {
		config, err := os.UserConfigDir()
		if err != nil {
			return "", &hintError{fmt.Errorf("find the configuration folder: %w", err), ownFolder}
		}
		dir = filepath.Join(config, "fxfer")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the folder for fxfer's state: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", &hintError{fmt.Errorf("make the folder for fxfer's state: %w", err), ownFolder}
	}
	return dir, nil
}

// Store is one folder of keys and lists of trust. It holds no open file, so there is nothing to
// close. Its methods are safe for concurrent use, also by several processes on the same folder.
type Store struct {
	dir string
	now func() time.Time
	key ed25519.PrivateKey // of an ephemeral store, which has no folder; else nil

	mu      sync.Mutex // guards the following
	clients clientCache
	invites inviteCache
	users   userCache
}

// Ephemeral returns a store with a key of its own and empty lists. It has no folder and writes no
// file, so methods that would change a list fail.
func Ephemeral() *Store {
	_, key, _ := ed25519.GenerateKey(nil) // never fails
	return &Store{now: time.Now, key: key}
}

// errEphemeral refuses to change a list that is kept nowhere.
var errEphemeral = errors.New("this server keeps no lists: it serves only the clients in its options")

// Dir returns the store's folder, "" if the store is ephemeral.
func (s *Store) Dir() string { return s.dir }

// OpenStore returns the store in dir, and makes the folder with mode 0700 if it is missing. On Unix
// it refuses a folder that everyone may write to: anyone could replace its lists.
func OpenStore(dir string) (*Store, error) {
	if dir == "" {
		return nil, errors.New("open the identity store: no folder given")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the identity store: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("open the identity store: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open the identity store: %s is not a folder", dir)
	}
	if err := refuseModes(dir, info, 0o002, "everyone may change it", "chmod o-w "); err != nil {
		return nil, err
	}
	return &Store{dir: dir, now: time.Now}, nil
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// Links returns the targets of those files in the store's folder that are symlinks.
func (s *Store) Links() (targets []string) {
	if s.key != nil {
		return nil
	}
	for _, name := range []string{keyFile, serversFile, clientsFile, invitesFile, usersFile, hostKeyFile, doorCertFile} {
		info, err := os.Lstat(s.path(name))
		if err != nil || info.Mode().Type() != fs.ModeSymlink {
			continue
		}
		if target, err := filepath.EvalSymlinks(s.path(name)); err == nil {
			targets = append(targets, target)
		}
	}
	return targets
}

// read returns the text of one list and the info of its file. A missing file gives empty text and
// nil info.
func (s *Store) read(name string) (string, fs.FileInfo, error) {
	if s.key != nil {
		return "", nil, nil
	}
	text, info, err := readFile(s.path(name), 0o002, "everyone may change it", "chmod o-w ")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, nil
	}
	return string(text), info, err
}

// update replaces the text of one list with the result of edit, atomically and with other processes
// locked out. It writes nothing if edit fails or changes nothing. A new file gets mode 0600, and an
// existing one keeps its mode.
func (s *Store) update(name string, edit func(text string) (string, error)) error {
	if s.key != nil {
		return errEphemeral
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	text, info, err := s.read(name)
	if err != nil {
		return err
	}
	next, err := edit(text)
	if err != nil || next == text {
		return err
	}
	mode := fs.FileMode(0o600)
	if info != nil {
		mode = info.Mode().Perm()
	}
	return WriteFile(s.path(name), []byte(next), mode)
}

// lock waits until no other Store, in this process or another, is changing this folder. The lock is
// a file of its own: update replaces the lists, and a lock on a replaced file locks nothing.
func (s *Store) lock() (unlock func(), err error) {
	f, err := os.OpenFile(s.path(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the identity store: %w", err)
	}
	if err := lockExclusive(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil // closing releases the lock
}

// openRegular opens a regular file to read it. The info is that of the open file.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// readFile reads a whole file. It trusts the file only if none of the mode bits in refused is set.
// The info is that of the open file, before reading.
func readFile(path string, refused fs.FileMode, why, remedy string) ([]byte, fs.FileInfo, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if err := refuseModes(path, info, refused, why, remedy); err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, nil, err
	}
	return data, info, nil
}

func refuseModes(path string, info fs.FileInfo, refused fs.FileMode, why, remedy string) error {
	if !openTo(info, refused) {
		return nil
	}
	return &hintError{fmt.Errorf("%s is not trusted: %s (mode %04o)", path, why, info.Mode().Perm()), remedy + path}
}

// WriteFile puts data under path, durably. Readers, also after a crash, see the old file or the whole
// new one.
func WriteFile(path string, data []byte, mode fs.FileMode) (err error) {
	// A list may be a link into someone's configuration repository: replace its target, not the
	// link.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	dir, name := filepath.Split(path)
	f, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = replaceFile(f.Name(), path)
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

// hintError is an error with a remedy for people.
type hintError struct {
	error
	hint string
}

func (e *hintError) Unwrap() error { return e.error }
func (e *hintError) Hint() string  { return e.hint }

// LineError reports lines of a list that have faults and were skipped. It names the first of them.
type LineError struct {
	File    string
	Line    int // counted from 1
	Problem string
	More    int // further bad lines in the file

	conflict bool // the line is well formed but contradicts an earlier one
}

func (e *LineError) Error() string {
	s := fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem)
	switch {
	case e.More == 1:
		s += " (and 1 more bad line)"
	case e.More > 1:
		s += fmt.Sprintf(" (and %d more bad lines)", e.More)
	}
	return s
}

// Hint says how to repair the list.
func (e *LineError) Hint() string { return "correct or delete that line" }

// add collects a faulty line: it keeps the first one and counts the others.
func (e *LineError) add(line int, problem error) {
	if e.Line > 0 {
		e.More++
		return
	}
	e.Line, e.Problem = line, problem.Error()
}

// err returns e if add was called, and nil otherwise.
func (e *LineError) err() error {
	if e.Line == 0 {
		return nil
	}
	return e
}
