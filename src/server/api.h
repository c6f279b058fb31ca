// Routes: which path does what, and who may ask.
#pragma once

#include <memory>

#include "server/http/exchange.h"
#include "server/service.h"

namespace cohort::server {

/// Answers any request. `service` must outlive the exchanges.
void handle(Service& service, const std::shared_ptr<Exchange>& exchange);

}  // namespace cohort::server
