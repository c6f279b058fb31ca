// The variables of scopes, while a template is resolved: which names a scope reads and sets, and where they live.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "text/template/ast.h"

namespace cohort::jinja {

/// The slots of a function: one for each name at each depth of its scopes.
struct FunctionScope {
  const FunctionScope* outer = nullptr;
  std::map<std::pair<uint32_t, std::string>, uint32_t, std::less<>> slots;  // (level, name)

  uint32_t slot(uint32_t level, const std::string& name) {
    return slots.try_emplace({level, name}, static_cast<uint32_t>(slots.size())).first->second;
  }
};

struct Variable {
  FunctionScope* function = nullptr;
  uint32_t slot = 0;
};

/// The names of one scope. A branch of an if has its own view, whose additions are merged behind it.
class Symbols {
 public:
  using Action = SlotLoad::Action;

  Symbols(FunctionScope& function, const Symbols* parent)
      : function_(&function), parent_(parent), level_(parent != nullptr ? parent->level_ + 1 : 0) {}

  Symbols branch() const {
    Symbols view(*function_, parent_);
    view.base_ = this;
    return view;
  }

  std::optional<Variable> find(const std::string& name) const {
    if (auto own = find_own(name)) return own;
    return parent_ != nullptr ? parent_->find(name) : std::nullopt;
  }

  void declare_parameter(const std::string& name) {
    stores_.insert(name);
    define(name, {Action::parameter, {}, {}});
  }

  void load(const std::string& name) {
    if (!find(name)) define(name, {Action::resolve, {}, name});
  }

  void store(const std::string& name) {
    stores_.insert(name);
    if (find_own(name)) return;
    std::optional<Variable> outer = parent_ != nullptr ? parent_->find(name) : std::nullopt;
    define(name, outer ? Load{Action::alias, *outer, {}} : Load{Action::undefined, {}, {}});
  }

  /// Adds what the branches of an if have added. A name that only branches set starts with its outer value.
  void merge(const std::vector<Symbols>& branches) {
    std::set<std::string> set_in_branches;
    for (const Symbols& view : branches) {
      for (const std::string& name : view.stores_) {
        if (!stores(name)) set_in_branches.insert(name);
      }
    }
    for (const Symbols& view : branches) {
      for (const auto& [name, slot] : view.slots_) slots_[name] = slot;
      for (const auto& [slot, action] : view.loads_) loads_[slot] = action;
      stores_.insert(view.stores_.begin(), view.stores_.end());
    }
    for (const std::string& name : set_in_branches) {
      std::optional<Variable> outer = parent_ != nullptr ? parent_->find(name) : std::nullopt;
      loads_[find_own(name)->slot] = outer ? Load{Action::alias, *outer, {}} : Load{Action::resolve, {}, name};
    }
  }

  SlotRef reference(const Variable& variable) const {
    uint32_t hops = 0;
    for (const FunctionScope* f = function_; f != variable.function; f = f->outer) ++hops;
    return {hops, variable.slot};
  }

  Scope scope() const {
    Scope scope;
    for (const auto& [slot, load] : loads_) {
      SlotRef source = load.action == Action::alias ? reference(load.source) : SlotRef{};
      scope.loads.push_back({load.action, slot, source, load.name});
    }
    return scope;
  }

  FunctionScope& function() const { return *function_; }

 private:
  struct Load {
    Action action = Action::undefined;
    Variable source;
    std::string name;
  };

  std::optional<Variable> find_own(const std::string& name) const {
    for (const Symbols* view = this; view != nullptr; view = view->base_) {
      if (auto found = view->slots_.find(name); found != view->slots_.end()) return Variable{function_, found->second};
    }
    return std::nullopt;
  }

  bool stores(const std::string& name) const {
    for (const Symbols* view = this; view != nullptr; view = view->base_) {
      if (view->stores_.count(name) != 0) return true;
    }
    return false;
  }

  void define(const std::string& name, Load load) {
    uint32_t slot = function_->slot(level_, name);
    slots_[name] = slot;
    loads_[slot] = std::move(load);
  }

  FunctionScope* function_;
  const Symbols* parent_;
  const Symbols* base_ = nullptr;  // the scope of which this is a branch
  uint32_t level_;
  std::map<std::string, uint32_t> slots_;
  std::map<uint32_t, Load> loads_;
  std::set<std::string> stores_;
};

}  // namespace cohort::jinja
