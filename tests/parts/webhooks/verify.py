"""Has the Python library of Standard Webhooks verify requests: the same as verify.go."""

import base64
import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def verdict(request):
    body = base64.b64decode(request["body"])
    try:
        Webhook(request["secret"]).verify(body, request["headers"])
    except WebhookVerificationError as error:
        return str(error)
    return None


json.dump([verdict(request) for request in json.load(sys.stdin)], sys.stdout)
