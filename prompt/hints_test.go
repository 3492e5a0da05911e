package prompt

import (
	"testing"
	"time"
)

func TestHints(t *testing.T) {
	for body, want := range map[string]Hints{
		`{}`: {},
		`{"nvext":{"agent_hints":{"osl":12,"priority":3,"other":[{}]}}}`:                  {OutputTokens: 12, Priority: 3},
		`{"nvext":{"agent_hints":{"osl":-1,"priority":-7}}}`:                              {Priority: -7},
		`{"nvext":{"agent_hints":{"osl":1e300,"priority":"high"}}}`:                       {OutputTokens: maxCount},
		`{"nvext":{"agent_hints":{"osl":1.5,"priority":null}}}`:                           {},
		`{"nvext":{"agent_hints":[1],"cache_control":"x"}}`:                               {},
		`{"nvext":[{"agent_hints":{"osl":1}}]}`:                                           {},
		`{"nvext":null,"cache_control":null}`:                                             {},
		`{"cache_control":{"type":"ephemeral"}}`:                                          {CacheTTL: 5 * time.Minute},
		`{"cache_control":{"type":"ephemeral","ttl":"5m"}}`:                               {CacheTTL: 5 * time.Minute},
		`{"cache_control":{"ttl":"1h","type":"ephemeral"}}`:                               {CacheTTL: time.Hour},
		`{"cache_control":{"type":"ephemeral","ttl":"90s"}}`:                              {CacheTTL: 90 * time.Second},
		`{"cache_control":{"type":"ephemeral","ttl":"4294967295s"}}`:                      {CacheTTL: maxCacheTTL},
		`{"cache_control":{"type":"ephemeral","ttl":"99999999999s"}}`:                     {},
		`{"cache_control":{"type":"ephemeral","ttl":"-5s"}}`:                              {},
		`{"cache_control":{"type":"ephemeral","ttl":"s"}}`:                                {},
		`{"cache_control":{"type":"ephemeral","ttl":""}}`:                                 {},
		`{"cache_control":{"type":"ephemeral","ttl":60}}`:                                 {},
		`{"cache_control":{"type":"forever","ttl":"1h"}}`:                                 {},
		`{"nvext":{"cache_control":{"type":"ephemeral","ttl":"30s"}}}`:                    {CacheTTL: 30 * time.Second},
		`{"messages":[{"role":"user","content":"\"cache_control\"","cache_control":{}}]}`: {},
	} {
		r, err := Parse(Chat, []byte(body))
		if err != nil || r.Hints != want {
			t.Errorf("%s: %+v, %v, want %+v", body, r, err, want)
		}
	}
}
