package slack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"

	"github.com/slack-go/slack"

	"github.com/countersign-mcp/countersign/notifier"
)

// reasons sorts Slack's error codes. A code that is not listed is a refusal that
// is tried again by the schedule.
var reasons = map[string]notifier.Fail{
	"ratelimited":  {Reason: notifier.RateLimited},
	"rate_limited": {Reason: notifier.RateLimited},

	"invalid_auth":            {Reason: notifier.Auth, Final: true},
	"not_authed":              {Reason: notifier.Auth, Final: true},
	"account_inactive":        {Reason: notifier.Auth, Final: true},
	"token_revoked":           {Reason: notifier.Auth, Final: true},
	"token_expired":           {Reason: notifier.Auth, Final: true},
	"missing_scope":           {Reason: notifier.Auth, Final: true},
	"no_permission":           {Reason: notifier.Auth, Final: true},
	"not_allowed_token_type":  {Reason: notifier.Auth, Final: true},
	"team_access_not_granted": {Reason: notifier.Auth, Final: true},
	"org_login_required":      {Reason: notifier.Auth, Final: true},
	"ekm_access_denied":       {Reason: notifier.Auth, Final: true},

	"channel_not_found":      {Reason: notifier.NoChannel, Final: true},
	"not_in_channel":         {Reason: notifier.NoChannel, Final: true},
	"is_archived":            {Reason: notifier.NoChannel, Final: true},
	"is_inactive":            {Reason: notifier.NoChannel, Final: true},
	"user_disabled":          {Reason: notifier.NoChannel, Final: true},
	"messages_tab_disabled":  {Reason: notifier.NoChannel, Final: true},
	"restricted_action":      {Reason: notifier.NoChannel, Final: true},
	"cant_update_message":    {Reason: notifier.Rejected, Final: true},
	"edit_window_closed":     {Reason: notifier.Rejected, Final: true},
	"message_limit_exceeded": {Reason: notifier.Rejected, Final: true},
	"message_not_found":      {Reason: notifier.Gone},

	"invalid_blocks":          {Reason: notifier.Payload, Final: true},
	"invalid_blocks_format":   {Reason: notifier.Payload, Final: true},
	"block_mismatch":          {Reason: notifier.Payload, Final: true},
	"msg_blocks_too_long":     {Reason: notifier.Payload, Final: true},
	"msg_too_long":            {Reason: notifier.Payload, Final: true},
	"no_text":                 {Reason: notifier.Payload, Final: true},
	"invalid_arguments":       {Reason: notifier.Payload, Final: true},
	"invalid_metadata_format": {Reason: notifier.Payload, Final: true},
	"invalid_metadata_schema": {Reason: notifier.Payload, Final: true},
	"metadata_too_large":      {Reason: notifier.Payload, Final: true},

	// "Some aspect of the operation may have succeeded."
	"internal_error":      {Reason: notifier.Unreachable, Maybe: true},
	"fatal_error":         {Reason: notifier.Unreachable, Maybe: true},
	"service_unavailable": {Reason: notifier.Unreachable, Maybe: true},
	"request_timeout":     {Reason: notifier.Unreachable, Maybe: true},
	"update_failed":       {Reason: notifier.Unreachable},

	"streaming_state_conflict": {Reason: notifier.Unreachable},
}

var (
	restricted = regexp.MustCompile(`^restricted_action(_[a-z_]{1,40})?$`)
	codeWord   = regexp.MustCompile(`^[a-z][a-z_]{1,60}$`)
)

// classify turns any error of the client library into a *notifier.Fail, whose
// text holds nothing but words of ours and of Slack's closed list. posting says
// that a call which may have been carried out may have posted something.
func classify(err error, posting bool) *notifier.Fail {
	var (
		limited *slack.RateLimitedError
		status  slack.StatusCodeError
		refusal slack.SlackErrorResponse
		number  *strconv.NumError
		dial    *net.OpError
	)
	switch {
	case errors.As(err, &limited):
		return &notifier.Fail{Reason: notifier.RateLimited, After: limited.RetryAfter}
	case errors.As(err, &number): // a Retry-After that is no number
		return &notifier.Fail{Reason: notifier.RateLimited}
	case errors.As(err, &status):
		return byStatus(status.Code, posting)
	case errors.As(err, &refusal):
		return byCode(refusal.Err, posting)
	case errors.As(err, &dial) && dial.Op == "dial": // no connection, so nothing was sent
		return &notifier.Fail{Reason: notifier.Unreachable, Detail: "no connection"}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), timedOut(err):
		return &notifier.Fail{Reason: notifier.Unreachable, Maybe: posting, Detail: "no answer in time"}
	}
	// A broken connection, or an answer that is not JSON.
	return &notifier.Fail{Reason: notifier.Unreachable, Maybe: posting, Detail: "no usable answer"}
}

func timedOut(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func byStatus(code int, posting bool) *notifier.Fail {
	f := &notifier.Fail{Reason: notifier.Rejected, Detail: fmt.Sprintf("HTTP %d", code)}
	switch {
	case code == http.StatusTooManyRequests:
		f.Reason = notifier.RateLimited
	case code >= 500:
		f.Reason, f.Maybe = notifier.Unreachable, posting
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		f.Reason, f.Final = notifier.Auth, true
	}
	return f
}

func byCode(code string, posting bool) *notifier.Fail {
	f, known := reasons[code]
	switch {
	case known:
	case restricted.MatchString(code):
		f = notifier.Fail{Reason: notifier.NoChannel, Final: true}
	default:
		f = notifier.Fail{Reason: notifier.Rejected}
	}
	f.Maybe = f.Maybe && posting
	f.Detail = "an unknown error"
	if codeWord.MatchString(code) {
		f.Detail = code
	}
	return &f
}

// refused is a final failure that we found ourselves.
func refused(detail string) *notifier.Fail {
	return &notifier.Fail{Reason: notifier.Rejected, Final: true, Detail: detail}
}
