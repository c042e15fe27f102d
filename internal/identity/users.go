package identity

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/ssh"
)

// MinPassword is the least length of a password in bytes. maxPassword bounds the work on one.
const (
	MinPassword = 8
	maxPassword = 1024
)

const usersHeader = "# Users of the doors for old clients, one password or ssh key a line; authorized_clients has their rights as user:NAME\n"

// user is how one user of a door may prove who it is.
type user struct {
	password *passwordHash // nil for none
	keys     [][]byte      // public keys in the wire format of ssh
}

// userCache is the content of door_users at the last read.
type userCache struct {
	info   fs.FileInfo // nil: nothing read yet, or no file
	readAt time.Time
	byName map[string]user
	bad    error // a *LineError, or nil
}

// CheckPassword reports whether a user of a door has this password. For a user that does not exist
// it takes as long. One call takes some 20 MiB of memory.
//
// A line of door_users with a fault admits nobody, and the other lines stay in force. The error is
// about such lines, or about the file.
func (s *Store) CheckPassword(name, password string) (bool, error) {
	cache, err := s.readUsers()
	if err != nil {
		return false, err
	}
	hash := cache.byName[name].password
	if hash == nil {
		_ = decoy.matches(password)
		return false, cache.bad
	}
	return hash.matches(password), cache.bad
}

// HasKey reports whether a user of a door has this public key, in the wire format of ssh. Errors are
// those of CheckPassword.
func (s *Store) HasKey(name string, key []byte) (bool, error) {
	cache, err := s.readUsers()
	if err != nil {
		return false, err
	}
	for _, k := range cache.byName[name].keys {
		if bytes.Equal(k, key) {
			return true, nil
		}
	}
	return false, cache.bad
}

// SetPassword gives a user of a door a password, in place of the one that it has. Only a hash is
// kept.
func (s *Store) SetPassword(name, password string) error {
	if _, err := ParseUser(name); err != nil {
		return err
	}
	if len(password) < MinPassword || len(password) > maxPassword {
		return fmt.Errorf("a password has %d to %d bytes, and this one has %d", MinPassword, maxPassword, len(password))
	}
	line := name + " " + newPasswordHash(password).String()
	return s.updateUsers(func(text string) (string, error) {
		var lines []string
		for old := range strings.SplitSeq(text, "\n") {
			if n, u, err := parseUserLine(old); err != nil || n != name || u.password == nil {
				lines = append(lines, old)
			}
		}
		return appendLine(strings.Join(lines, "\n"), usersHeader, line), nil
	})
}

// AddKey gives a user of a door another public key, as a file of ssh-keygen or a line of
// authorized_keys has it.
func (s *Store) AddKey(name, key string) error {
	if _, err := ParseUser(name); err != nil {
		return err
	}
	parsed, comment, err := parseSSHKey(key)
	if err != nil {
		return err
	}
	line := name + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(parsed)))
	if comment = cleanComment(comment); comment != "" {
		line += " " + comment
	}
	return s.updateUsers(func(text string) (string, error) {
		users, _ := parseUsers(text, "")
		for _, k := range users[name].keys {
			if bytes.Equal(k, parsed.Marshal()) {
				return text, nil
			}
		}
		return appendLine(text, usersHeader, line), nil
	})
}

// updateUsers is update for door_users, which nobody else may read.
func (s *Store) updateUsers(edit func(text string) (string, error)) error {
	if _, _, err := s.readUserFile(); err != nil {
		return err
	}
	return s.update(usersFile, edit)
}

func (s *Store) readUserFile() ([]byte, fs.FileInfo, error) {
	if s.key != nil {
		return nil, nil, nil
	}
	text, info, err := readFile(s.path(usersFile), 0o077, "others may read or change these hashes of passwords", "chmod 600 ")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	return text, info, err
}

// readUsers returns the content of door_users, from memory if the file did not change. The caller
// must not change it.
func (s *Store) readUsers() (userCache, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.users
	if unchanged(s.path(usersFile), c.info, c.readAt) {
		return *c, nil
	}
	*c = userCache{readAt: time.Now()}
	text, info, err := s.readUserFile()
	if err != nil {
		return userCache{}, err
	}
	c.info = info
	c.byName, c.bad = parseUsers(string(text), s.path(usersFile))
	return *c, nil
}

// parseUsers reads the text of door_users. It skips lines with faults and returns them as a
// *LineError. Of several passwords of a user, the last one counts.
func parseUsers(text, file string) (map[string]user, error) {
	all := make(map[string]user)
	bad := &LineError{File: file}
	for n, line := range strings.Split(text, "\n") {
		name, one, err := parseUserLine(line)
		switch {
		case err != nil:
			bad.add(n+1, err)
		case name != "":
			u := all[name]
			if one.password != nil {
				u.password = one.password
			}
			u.keys = append(u.keys, one.keys...)
			all[name] = u
		}
	}
	return all, bad.err()
}

// parseUserLine reads a name, and a hash or a public key. An empty line or a comment gives an empty
// name.
func parseUserLine(line string) (name string, u user, err error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", u, nil
	}
	name, proof, _ := strings.Cut(line, " ")
	if _, err := ParseUser(name); err != nil {
		return "", u, err
	}
	if proof = strings.TrimSpace(proof); strings.HasPrefix(proof, "$") {
		u.password, err = parsePasswordHash(proof)
		return name, u, err
	}
	key, _, err := parseSSHKey(proof)
	if err != nil {
		return "", u, err
	}
	u.keys = [][]byte{key.Marshal()}
	return name, u, nil
}

func parseSSHKey(text string) (key ssh.PublicKey, comment string, err error) {
	key, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("%q is not a public key of ssh: expected a line such as ssh-ed25519 AAAA…", clip(text))
	case len(options) > 0:
		return nil, "", errors.New("a public key has options, which are not supported")
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, "", errors.New("expected one public key, found several lines")
	}
	return key, comment, nil
}

// The costs of new hashes: the least that OWASP's Password Storage Cheat Sheet recommends. Logins are
// few, and a small host checks several at a time.
const (
	hashMemory  = 19 << 10 // KiB
	hashPasses  = 2
	hashThreads = 1
	hashSize    = 32 // bytes
	saltSize    = 16 // bytes
)

// The most that a hash in the file may cost.
const (
	maxHashMemory = 256 << 10 // KiB
	maxHashPasses = 16
	maxHashSize   = 64 // bytes, also of salts
)

// passwordHash is an Argon2id hash (RFC 9106).
type passwordHash struct {
	memory, passes uint32 // KiB, and passes over it
	threads        uint8
	salt, sum      []byte
}

// decoy is what the password of an unknown user is compared with.
var decoy = &passwordHash{
	memory: hashMemory, passes: hashPasses, threads: hashThreads,
	salt: make([]byte, saltSize), sum: make([]byte, hashSize),
}

func newPasswordHash(password string) *passwordHash {
	h := *decoy
	h.salt = make([]byte, saltSize)
	_, _ = rand.Read(h.salt) // never fails
	h.sum = h.of(password)
	return &h
}

func (h *passwordHash) of(password string) []byte {
	return argon2.IDKey([]byte(password), h.salt, h.passes, h.memory, h.threads, uint32(len(h.sum)))
}

// matches takes the same time whatever the password is. Longer ones than any user can have are cut.
func (h *passwordHash) matches(password string) bool {
	sum := h.of(password[:min(len(password), maxPassword+1)])
	return subtle.ConstantTimeCompare(sum, h.sum) == 1
}

// String returns the hash in the form of the reference implementation, which other programs use,
// too: $argon2id$v=19$m=19456,t=2,p=1$salt$hash, both in base64 without padding.
func (h *passwordHash) String() string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version,
		h.memory, h.passes, h.threads, b64.EncodeToString(h.salt), b64.EncodeToString(h.sum))
}

var errNoHash = errors.New("expected a hash that `fxfer clients password` has made: $argon2id$…")

// parsePasswordHash reads what String returns. It rejects hashes that cost too much.
func parsePasswordHash(s string) (*passwordHash, error) {
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return nil, errNoHash
	}
	h := new(passwordHash)
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.memory, &h.passes, &h.threads); err != nil {
		return nil, errNoHash
	}
	var saltErr, sumErr error
	h.salt, saltErr = base64.RawStdEncoding.Strict().DecodeString(parts[4])
	h.sum, sumErr = base64.RawStdEncoding.Strict().DecodeString(parts[5])
	small := h.passes < 1 || h.threads < 1 || h.memory < 8*uint32(h.threads) || len(h.salt) < 8 || len(h.sum) < 16
	large := h.passes > maxHashPasses || h.memory > maxHashMemory || len(h.salt) > maxHashSize || len(h.sum) > maxHashSize
	if saltErr != nil || sumErr != nil || small || large || h.String() != s {
		return nil, errNoHash
	}
	return h, nil
}
