package session

import (
	"crypto/ed25519"

	"github.com/fxfer/fxfer/internal/identity"
)

// OpenIdentity opens the folder of this host's identity, "" for the user's, and returns the key in
// it. Both are created if they do not exist.
func OpenIdentity(home string) (*identity.Store, ed25519.PrivateKey, error) {
	var err error
	if home == "" {
		if home, err = identity.Home(); err != nil {
			return nil, nil, &Error{Kind: KindLocalDisk, Err: err}
		}
	}
	store, err := identity.OpenStore(home)
	if err != nil {
		return nil, nil, &Error{Kind: KindLocalDisk, Err: err}
	}
	key, err := store.Key()
	if err != nil {
		return nil, nil, &Error{Kind: KindLocalDisk, Err: err}
	}
	return store, key, nil
}
