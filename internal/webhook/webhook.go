// Package webhook posts messages to URLs that an administrator has chosen.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// Parse checks the URL of a webhook. It may be a secret, so the error does not have it.
func Parse(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("expected a URL such as https://example.org/hook")
	}
	return s, nil
}

// Bounds of a secret and of its file with blanks, in bytes.
const (
	maxSecret = 4096
	maxFile   = 2 * maxSecret
)

// Bearer returns the value of the header Authorization for the secret in a file, whose blanks and ends
// of lines at the beginning and at the end do not count.
func Bearer(file string) (string, error) {
	if info, err := os.Stat(file); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() { // a pipe has no end, and no deadline
		return "", fmt.Errorf("%s: expected a regular file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" || len(text) > maxFile || len(secret) > maxSecret || strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: expected one line of 1 to %d ASCII characters without blanks", file, maxSecret)
	}
	return "Bearer " + secret, nil
}

// client follows no redirects: headers and body are for the configured host alone.
var client = http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// Post sends a body of JSON to the webhook at a URL, with these headers, until ctx ends. Any answer but
// 2xx is an error. The URL and the headers may be secret, so errors say no more of them than the host,
// and repeat nothing that the host said.
func Post(ctx context.Context, to string, headers map[string]string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return errors.New("the webhook's URL is invalid")
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	host := request.URL.Host
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("webhook at %s: %w", host, withoutSecrets(err))
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10)
	switch code := response.StatusCode; {
	case code >= http.StatusBadRequest:
		return fmt.Errorf("webhook at %s: status %d %s", host, code, http.StatusText(code))
	case code >= http.StatusMultipleChoices:
		return fmt.Errorf("webhook at %s: it redirects (status %d), which is not followed: use the final URL", host, code)
	}
	return nil
}

// withoutSecrets returns what a log may have of a request's error. Others have the URL, or parts of the
// answer, which may repeat it.
func withoutSecrets(err error) error {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, http.ErrSchemeMismatch} {
		if errors.Is(err, known) {
			return known
		}
	}
	var certificate *tls.CertificateVerificationError
	var network *net.OpError
	switch {
	case errors.As(err, &certificate): // the host shows it before it gets a request
		return certificate
	case errors.As(err, &network):
		return network
	}
	return errors.New("it gave no valid answer of HTTP")
}
