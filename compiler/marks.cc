#include "marks.h"

#include <string>

#include "emit.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/GlobalVariable.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/Metadata.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"
#include "passes.h"

namespace far::compiler {
namespace {

// A scope of aliasing without any access outside of it says nothing to LLVM's passes, but they keep it where they
// combine or change accesses. Metadata of a kind of our own would be lost.
constexpr const char* hot_scope = "farheap.hot";
constexpr const char* local_scope = "farheap.local";

constexpr const char* mark_of_no_pointer =
    "the mark does nothing: the variable is no pointer, and what is in it may lead anywhere; mark its members";

llvm::MDNode* scope_of(llvm::Module& module, const char* name) {
  llvm::NamedMDNode* const kept = module.getOrInsertNamedMetadata(name);
  if (kept->getNumOperands() == 0) {
    llvm::MDBuilder builder(module.getContext());
    llvm::MDNode* const domain = builder.createAnonymousAliasScopeDomain("farheap");
    kept->addOperand(llvm::MDNode::get(module.getContext(), builder.createAnonymousAliasScope(domain, name)));
  }
  return kept->getOperand(0);
}

bool has_scope(const llvm::Instruction& access, const char* name) {
  const llvm::MDNode* const scopes = access.getMetadata(llvm::LLVMContext::MD_alias_scope);
  if (scopes == nullptr) return false;
  return llvm::any_of(scopes->operands(), [name](const llvm::MDOperand& scope) {
    const auto* const node = llvm::dyn_cast<llvm::MDNode>(scope);
    return node != nullptr && llvm::AliasScopeNode(node).getName() == name;
  });
}

// Functions of the C library and operators of C++ whose blocks the support can take from local memory (support.c).
llvm::StringRef local_function_for(llvm::StringRef name) {
  return llvm::StringSwitch<llvm::StringRef>(name)
      .Case("malloc", "__farheap_local_malloc")
      .Case("calloc", "__farheap_local_calloc")
      .Case("realloc", "__farheap_local_realloc")
      .Case("aligned_alloc", "__farheap_local_aligned_alloc")
      .Cases("_Znwm", "_Znam", "__farheap_local_new")
      .Default("");
}

bool holds_pointers(const llvm::Type& type) {
  return type.isPointerTy() ||
         llvm::any_of(type.subtypes(), [](const llvm::Type* part) { return holds_pointers(*part); });
}

class reader {
 public:
  explicit reader(llvm::Module& module) : module_(module) {}

  bool run() {
    read_annotations();
    for (llvm::Function& function : module_) {
      if (!function.hasOptNone()) read(function);
    }
    for (llvm::Function* const step : steps_) step->eraseFromParent();
    return changed_;
  }

 private:
  // The last operands of an annotation, wherever it stands.
  struct place {
    const llvm::Value* file;
    const llvm::Value* line;
  };

  void read_annotations();
  void read_type(llvm::Function& step, const place& at);
  void keep_apart(llvm::Function& function, const place& at);
  void read(llvm::Function& function);
  void read_member(llvm::IntrinsicInst& call, llvm::StringRef mark);
  void read_variable(const llvm::IntrinsicInst& call, llvm::StringRef mark);
  void mark(llvm::Value& pointer, const char* scope);
  void mark_loaded(llvm::Value& variable, const char* scope);
  void allocate_locally(llvm::Value& variable, const place& at);
  void allocate_locally(llvm::Value& stored, const place& at, unsigned depth);
  void warn(const place& at, const char* message);

  llvm::Module& module_;
  llvm::SmallPtrSet<llvm::StructType*, 8> hot_types_;
  llvm::SmallVector<llvm::Function*, 8> steps_;
  bool changed_ = false;
};

void reader::warn(const place& at, const char* message) {
  const auto* const line = llvm::dyn_cast<llvm::ConstantInt>(at.line);
  const std::string where = text_of(at.file).str() + ":" + std::to_string(line == nullptr ? 0 : line->getZExtValue());
  module_.getContext().diagnose(llvm::DiagnosticInfoPGOProfile(where.c_str(), message, llvm::DS_Warning));
}

// Marks the accesses by way of the pointer, and those of elements and members of what it leads to.
void reader::mark(llvm::Value& pointer, const char* scope) {
  llvm::SmallVector<llvm::Value*, 8> waiting{&pointer};
  while (!waiting.empty()) {
    llvm::Value* const address = waiting.pop_back_val();
    for (llvm::User* const user : address->users()) {
      auto* const access = llvm::dyn_cast<llvm::Instruction>(user);
      if (access == nullptr) continue;
      if (llvm::isa<llvm::GetElementPtrInst>(access)) waiting.push_back(access);
      if (llvm::isa<llvm::GetElementPtrInst>(access) || pointer_of(*access) != address) continue;
      llvm::MDNode* const others = access->getMetadata(llvm::LLVMContext::MD_alias_scope);
      access->setMetadata(llvm::LLVMContext::MD_alias_scope,
                          llvm::MDNode::concatenate(others, scope_of(module_, scope)));
      changed_ = true;
    }
  }
}

// What is allocated for the variable, or for one of the values that it may get, stays local.
void reader::allocate_locally(llvm::Value& variable, const place& at) {
  llvm::SmallVector<llvm::Value*, 4> stored;
  for (llvm::User* const user : variable.users()) {
    auto* const store = llvm::dyn_cast<llvm::StoreInst>(user);
    if (store != nullptr && store->getPointerOperand() == &variable) stored.push_back(store->getValueOperand());
  }
  for (llvm::Value* const value : stored) allocate_locally(*value, at, 4);
}

void reader::allocate_locally(llvm::Value& stored, const place& at, unsigned depth) {
  llvm::Value* const value = stored.stripInBoundsConstantOffsets();
  if (llvm::isa<llvm::PHINode, llvm::SelectInst>(value) && depth > 0) {
    for (llvm::Value* const one : llvm::cast<llvm::User>(value)->operands()) allocate_locally(*one, at, depth - 1);
    return;
  }
  auto* const call = llvm::dyn_cast<llvm::CallBase>(value);
  llvm::Function* const called = call == nullptr ? nullptr : call->getCalledFunction();
  if (called == nullptr || !called->isDeclaration()) return;
  const llvm::StringRef name = local_function_for(called->getName());
  if (name.empty()) {
    const bool allocates = called->hasFnAttribute(llvm::Attribute::AllocKind) || called->returnDoesNotAlias();
    if (allocates && !called->getName().starts_with("__farheap_local")) {
      warn(at,
           "what is allocated for the variable is far, as only malloc, calloc, realloc, aligned_alloc and new can "
           "make it local; call far_local_allocate()");
    }
    return;
  }
  llvm::FunctionCallee local = module_.getOrInsertFunction(name, called->getFunctionType());
  auto* const function = llvm::cast<llvm::Function>(local.getCallee());
  function->copyAttributesFrom(called);
  function->setVisibility(llvm::GlobalValue::HiddenVisibility);
  function->setDSOLocal(true);
  call->setCalledFunction(function);
  keep_reference(module_, called->getName(), *called);
  changed_ = true;
}

// Marks the accesses by way of pointers that are loaded from the variable.
void reader::mark_loaded(llvm::Value& variable, const char* scope) {
  for (llvm::User* const user : variable.users()) {
    if (llvm::isa<llvm::LoadInst>(user) && user->getType()->isPointerTy()) mark(*user, scope);
  }
}

// Clang names no member of a union: only what is read and written says what it is.
bool is_pointer_of_union(const llvm::IntrinsicInst& call, const llvm::GetElementPtrInst& member) {
  const auto* const type = llvm::dyn_cast<llvm::StructType>(member.getResultElementType());
  if (type == nullptr || !type->hasName() || !type->getName().starts_with("union.")) return false;
  return llvm::any_of(call.users(), [&call](const llvm::User* user) {
    const auto* const store = llvm::dyn_cast<llvm::StoreInst>(user);
    if (store != nullptr)
      return store->getPointerOperand() == &call && store->getValueOperand()->getType()->isPointerTy();
    return llvm::isa<llvm::LoadInst>(user) && user->getType()->isPointerTy();
  });
}

// A hot member is in use itself. A local one says where it leads, or, if it is no pointer, where it is.
void reader::read_member(llvm::IntrinsicInst& call, llvm::StringRef text) {
  if (text == hot_mark) return mark(call, hot_scope);
  const auto* const member = llvm::dyn_cast<llvm::GetElementPtrInst>(call.getArgOperand(0));
  if (member != nullptr && !member->getResultElementType()->isPointerTy() && !is_pointer_of_union(call, *member)) {
    return mark(call, local_scope);
  }
  mark_loaded(call, local_scope);
  allocate_locally(call, {call.getArgOperand(2), call.getArgOperand(3)});
}

// A variable on the stack is local, and stays; so its marks are about what it leads to.
void reader::read_variable(const llvm::IntrinsicInst& call, llvm::StringRef text) {
  llvm::Value* const variable = call.getArgOperand(0)->stripPointerCasts();
  const place at{call.getArgOperand(2), call.getArgOperand(3)};
  const auto* const stack = llvm::dyn_cast<llvm::AllocaInst>(variable);
  if (stack == nullptr || stack->getAllocatedType()->isPointerTy()) {
    mark_loaded(*variable, text == hot_mark ? hot_scope : local_scope);
    if (text == local_mark) allocate_locally(*variable, at);
  } else if (holds_pointers(*stack->getAllocatedType())) {
    warn(at, mark_of_no_pointer);
  }
}

void reader::read(llvm::Function& function) {
  llvm::SmallVector<llvm::IntrinsicInst*, 8> calls;
  for (llvm::BasicBlock& block : function) {
    for (llvm::Instruction& one : block) {
      auto* const address = llvm::dyn_cast<llvm::GetElementPtrInst>(&one);
      auto* const type =
          address == nullptr ? nullptr : llvm::dyn_cast<llvm::StructType>(address->getSourceElementType());
      if (type != nullptr && hot_types_.contains(type)) mark(*address, hot_scope);
      auto* const call = llvm::dyn_cast<llvm::IntrinsicInst>(&one);
      if (call == nullptr || (call->getIntrinsicID() != llvm::Intrinsic::ptr_annotation &&
                              call->getIntrinsicID() != llvm::Intrinsic::var_annotation)) {
        continue;
      }
      const llvm::StringRef text = text_of(call->getArgOperand(1));
      if (text == hot_mark || text == local_mark) calls.push_back(call);
    }
  }
  for (llvm::IntrinsicInst* const call : calls) {
    const llvm::StringRef text = text_of(call->getArgOperand(1));
    if (call->getIntrinsicID() == llvm::Intrinsic::ptr_annotation) {
      read_member(*call, text);
      call->replaceAllUsesWith(call->getOperand(0));
    } else {
      read_variable(*call, text);
    }
    call->eraseFromParent();
    changed_ = true;
  }
}

// FAR_HOT_TYPE's function returns a pointer to the next object behind its argument.
void reader::read_type(llvm::Function& step, const place& at) {
  llvm::StructType* found = nullptr;
  for (const llvm::Instruction& one : llvm::instructions(step)) {
    const auto* const address = llvm::dyn_cast<llvm::GetElementPtrInst>(&one);
    if (address != nullptr) found = llvm::dyn_cast<llvm::StructType>(address->getSourceElementType());
  }
  if (found == nullptr || !found->hasName() || found->getName().starts_with("union.")) {
    warn(at, "FAR_HOT_TYPE does nothing: the type is no structure or class; mark variables or members of it");
  } else {
    hot_types_.insert(found);
  }
  steps_.push_back(&step);
}

// A function that is left alone stays one.
void reader::keep_apart(llvm::Function& function, const place& at) {
  if (function.hasFnAttribute(llvm::Attribute::AlwaysInline)) {
    return warn(at, "the mark does nothing: the function is always inlined, into functions without the mark");
  }
  function.addFnAttr(llvm::Attribute::NoInline);
  changed_ = true;
}

void reader::read_annotations() {
  const llvm::GlobalVariable* const all = module_.getNamedGlobal("llvm.global.annotations");
  if (all == nullptr || !all->hasInitializer()) return;
  for (const llvm::Use& entry : all->getInitializer()->operands()) {
    const auto* const fields = llvm::dyn_cast<llvm::ConstantStruct>(entry.get());
    if (fields == nullptr || fields->getNumOperands() < 4) continue;
    llvm::Value* const object = fields->getOperand(0)->stripPointerCasts();
    const llvm::StringRef text = text_of(fields->getOperand(1));
    const place at{fields->getOperand(2), fields->getOperand(3)};
    auto* const function = llvm::dyn_cast<llvm::Function>(object);
    auto* const variable = llvm::dyn_cast<llvm::GlobalVariable>(object);
    if (function != nullptr && text == hot_type_mark) read_type(*function, at);
    if (function != nullptr && text == hot_mark) {
      warn(at, "FAR_HOT does nothing for a function; mark the type, the members or the variables that it uses");
    }
    if (function != nullptr && (text == local_mark || text == local_region_mark)) keep_apart(*function, at);
    if (variable == nullptr || (text != local_mark && text != local_region_mark)) continue;
    if (variable->getValueType()->isPointerTy()) {
      allocate_locally(*variable, at);
    } else if (text == local_mark && holds_pointers(*variable->getValueType())) {
      warn(at, mark_of_no_pointer);
    }
  }
  llvm::removeFromUsedLists(module_, [this](llvm::Constant* used) { return llvm::is_contained(steps_, used); });
  for (llvm::Function* const step : steps_) {
    step->replaceAllUsesWith(llvm::ConstantPointerNull::get(llvm::PointerType::getUnqual(module_.getContext())));
    changed_ = true;
  }
}

}  // namespace

llvm::PreservedAnalyses marks::run(llvm::Module& module, llvm::ModuleAnalysisManager& /*analyses*/) {
  if (!is_for_us(module)) return llvm::PreservedAnalyses::all();
  bool changed = reader(module).run();
  // Here, as symbols that passes make in the linker of LTO come too late for it to export them.
  if (chosen_object_bytes() != 0) changed |= emitter(module).ask_for_objects(chosen_object_bytes());
  return changed ? llvm::PreservedAnalyses::none() : llvm::PreservedAnalyses::all();
}

bool is_hot(const llvm::Instruction& access, const llvm::Value* pointer) {
  if (has_scope(access, hot_scope)) return true;
  const llvm::Value* const object = llvm::getUnderlyingObject(pointer, 12);
  if (const auto* const load = llvm::dyn_cast<llvm::LoadInst>(object)) {
    const auto* const from = llvm::dyn_cast<llvm::GlobalVariable>(llvm::getUnderlyingObject(load->getPointerOperand()));
    return from != nullptr && is_annotated(*from, hot_mark);
  }
  return is_hot_variable(object);
}

bool is_said_to_be_local(const llvm::Instruction& access) {
  return has_scope(access, local_scope);
}

}  // namespace far::compiler
