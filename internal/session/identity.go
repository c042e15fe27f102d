package session

import (
	"crypto/ed25519"

	"github.com/fxfer/fxfer/internal/identity"
)

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
