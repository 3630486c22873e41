// Has the Go library of Standard Webhooks verify requests.
//
// Input: a JSON array of {"secret", "headers", "body" (in base64)}. Output: a JSON array with null for each
// that the library accepts, and its words for each that it does not.
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

type request struct {
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`
}

func (r request) verify() error {
	webhook, err := standardwebhooks.NewWebhook(r.Secret)
	if err != nil {
		return err
	}
	headers := http.Header{}
	for name, value := range r.Headers {
		headers.Set(name, value)
	}
	return webhook.Verify(r.Body, headers)
}

func main() {
	var requests []request
	if err := json.NewDecoder(os.Stdin).Decode(&requests); err != nil {
		log.Fatal(err)
	}
	verdicts := make([]*string, len(requests))
	for i, request := range requests {
		if err := request.verify(); err != nil {
			words := err.Error()
			verdicts[i] = &words
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(verdicts); err != nil {
		log.Fatal(err)
	}
}
