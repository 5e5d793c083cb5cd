#include "emit.h"

#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"
#include "marks.h"

namespace far::compiler {
namespace {

// Whether far/local.h says so: by FAR_LOCAL_DATA for the variable that it was loaded from, or by far_local_allocate().
bool leads_to_local(const llvm::Value* object) {
  if (const auto* const call = llvm::dyn_cast<llvm::CallBase>(object)) {
    const llvm::Function* const called = call->getCalledFunction();
    return called != nullptr && is_annotated(*called, "far_local_memory");
  }
  const auto* const load = llvm::dyn_cast<llvm::LoadInst>(object);
  const auto* const variable =
      load == nullptr ? nullptr
                      : llvm::dyn_cast<llvm::GlobalVariable>(llvm::getUnderlyingObject(load->getPointerOperand()));
  return variable != nullptr && (is_annotated(*variable, local_mark) || is_annotated(*variable, local_region_mark));
}

}  // namespace

bool is_for_us(const llvm::Module& module) {
  const llvm::Triple target(module.getTargetTriple());
  return target.getArch() == llvm::Triple::x86_64 && target.isOSLinux() &&
         module.getDataLayout().getPointerSizeInBits() == 64 && module.getCodeModel() != llvm::CodeModel::Kernel;
}

llvm::StringRef text_of(const llvm::Value* annotation) {
  const auto* const text = llvm::dyn_cast<llvm::GlobalVariable>(annotation->stripPointerCasts());
  const auto* const bytes = text == nullptr || !text->hasInitializer()
                                ? nullptr
                                : llvm::dyn_cast<llvm::ConstantDataSequential>(text->getInitializer());
  return bytes != nullptr && bytes->isCString() ? bytes->getAsCString() : "";
}

bool is_annotated(const llvm::GlobalObject& object, llvm::StringRef annotation) {
  const llvm::GlobalVariable* const all = object.getParent()->getNamedGlobal("llvm.global.annotations");
  if (all == nullptr || !all->hasInitializer()) return false;
  for (const llvm::Use& entry : all->getInitializer()->operands()) {
    const auto* const fields = llvm::dyn_cast<llvm::ConstantStruct>(entry.get());
    if (fields == nullptr || fields->getOperand(0)->stripPointerCasts() != &object) continue;
    if (text_of(fields->getOperand(1)) == annotation) return true;
  }
  return false;
}

llvm::StructType* emitter::shape() {
  llvm::Type* const pointer = llvm::PointerType::getUnqual(context_);
  return llvm::StructType::get(context_, {llvm::Type::getInt64Ty(context_), pointer, pointer});
}

llvm::Constant* emitter::shared() {
  auto* const found = llvm::cast<llvm::GlobalVariable>(module_.getOrInsertGlobal(shared_struct, shape()));
  found->setVisibility(llvm::GlobalValue::HiddenVisibility);
  found->setDSOLocal(true);
  return found;
}

// The table and its mask change once, before functions of the program run: when its first constructor joins
// (support.c), or, for libraries that have joined before the runtime serves, then, unless there are threads
// (serve_compiled_code()). So the guards of a function may share them, and loops load them once. Left out are functions
// that run before their library's constructors, such as resolvers of indirect functions, in threads that these start.
llvm::Value* emitter::load(llvm::IRBuilder<>& at, field wanted) {
  const auto index = static_cast<unsigned>(wanted);
  llvm::LoadInst* const one =
      at.CreateLoad(shape()->getElementType(index), at.CreateStructGEP(shape(), shared(), index));
  if (wanted != field::has_evicted) {
    one->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(context_, {}));
  }
  return one;
}

llvm::Constant* emitter::site_of(const llvm::Function& user) {
  const std::string name = "__farheap_site." + user.getName().str();
  if (llvm::GlobalVariable* const known = module_.getNamedGlobal(name)) return known;
  const llvm::DISubprogram* const program = user.getSubprogram();
  const std::string file = program != nullptr ? program->getFilename().str() : module_.getSourceFileName();
  llvm::Constant* const text = llvm::ConstantDataArray::getString(context_, file);
  auto* const characters = new llvm::GlobalVariable(module_, text->getType(), true, llvm::GlobalValue::PrivateLinkage,
                                                    text, "__farheap_file");
  characters->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
  llvm::Type* const number = llvm::Type::getInt32Ty(context_);
  llvm::StructType* const shape = llvm::StructType::get(context_, {characters->getType(), number, number});
  llvm::Constant* const line = llvm::ConstantInt::get(number, program != nullptr ? program->getLine() : 0);
  llvm::Constant* const value = llvm::ConstantStruct::get(shape, {characters, line, llvm::ConstantInt::get(number, 0)});
  return new llvm::GlobalVariable(module_, shape, false, llvm::GlobalValue::InternalLinkage, value, name);
}

llvm::Constant* emitter::loop_of(const llvm::Function& user) {
  llvm::Constant* const zero = llvm::ConstantInt::get(llvm::Type::getInt64Ty(context_), 0);
  llvm::Constant* const value = llvm::ConstantStruct::getAnon({site_of(user), zero, zero, zero});
  return new llvm::GlobalVariable(module_, value->getType(), false, llvm::GlobalValue::PrivateLinkage, value,
                                  "__farheap_loop");
}

llvm::Value* emitter::load_rest(llvm::IRBuilder<>& at, llvm::Constant* loop) {
  auto* const type = llvm::cast<llvm::GlobalVariable>(loop)->getValueType();
  return at.CreateLoad(at.getInt64Ty(), at.CreateStructGEP(type, loop, 1), /*isVolatile=*/true);
}

llvm::Constant* emitter::walk_of(llvm::ArrayRef<walked> streams, std::uint64_t iterations, const llvm::Function& user) {
  llvm::Type* const half = llvm::Type::getInt32Ty(context_);
  llvm::Type* const word = llvm::Type::getInt64Ty(context_);
  llvm::SmallVector<llvm::Constant*, 2 + 2 * walk_streams> fields{site_of(user),
                                                                  llvm::ConstantInt::get(word, iterations)};
  for (std::size_t i = 0; i < walk_streams; ++i) {
    const walked one = i < streams.size() ? streams[i] : walked{};
    fields.push_back(llvm::ConstantInt::getSigned(half, one.step_bytes));
    fields.push_back(
        llvm::ConstantInt::get(half, (one.write ? 1u : 0u) | (one.hot ? 2u : 0u) | (one.overwrites ? 4u : 0u)));
  }
  llvm::Constant* const value = llvm::ConstantStruct::getAnon(fields);
  return new llvm::GlobalVariable(module_, value->getType(), true, llvm::GlobalValue::PrivateLinkage, value,
                                  "__farheap_walk");
}

llvm::Constant* emitter::column_of(std::uint64_t row_bytes, std::uint64_t rows, bool write, bool is_here,
                                   const llvm::Function& user) {
  llvm::Type* const half = llvm::Type::getInt32Ty(context_);
  llvm::Constant* const value = llvm::ConstantStruct::getAnon(
      {site_of(user), llvm::ConstantInt::get(half, row_bytes), llvm::ConstantInt::get(half, rows),
       llvm::ConstantInt::get(llvm::Type::getInt64Ty(context_), (write ? 1u : 0u) | (is_here ? 2u : 0u))});
  auto* const record = new llvm::GlobalVariable(module_, value->getType(), true, llvm::GlobalValue::PrivateLinkage,
                                                value, "__farheap_rows");
  // Side by side, so that two columns of a loop are not remembered in one place.
  record->setAlignment(llvm::Align(8));
  return record;
}

llvm::FunctionCallee emitter::slow_path(const char* name, llvm::ArrayRef<llvm::Type*> parameters, llvm::Type* result) {
  llvm::FunctionType* const type =
      llvm::FunctionType::get(result != nullptr ? result : llvm::Type::getVoidTy(context_), parameters, false);
  llvm::FunctionCallee called = module_.getOrInsertFunction(name, type);
  auto* const function = llvm::cast<llvm::Function>(called.getCallee());
  function->setCallingConv(llvm::CallingConv::PreserveMost);
  function->setVisibility(llvm::GlobalValue::HiddenVisibility);
  function->setDSOLocal(true);
  function->addFnAttr(llvm::Attribute::Cold);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  return called;
}

llvm::FunctionCallee emitter::guard(bool write) {
  return slow_path(write ? written_guard_call : guard_call, {llvm::PointerType::getUnqual(context_)});
}

llvm::FunctionCallee emitter::hot() {
  llvm::Type* const pointer = llvm::PointerType::getUnqual(context_);
  return slow_path(hot_call, {pointer, llvm::Type::getInt64Ty(context_), pointer});
}

llvm::FunctionCallee emitter::read() {
  llvm::Type* const pointer = llvm::PointerType::getUnqual(context_);
  llvm::Type* const word = llvm::Type::getInt64Ty(context_);
  return slow_path(read_call, {pointer, word, pointer}, word);
}

bool emitter::ask_for_objects(unsigned bytes) {
  if (module_.getNamedGlobal(object_bytes_name) != nullptr) return false;
  llvm::Type* const number = llvm::Type::getInt32Ty(context_);
  new llvm::GlobalVariable(module_, number, true, llvm::GlobalValue::WeakAnyLinkage,
                           llvm::ConstantInt::get(number, bytes), object_bytes_name);
  return true;
}

llvm::FunctionCallee emitter::guards() {
  llvm::Type* const pointer = llvm::PointerType::getUnqual(context_);
  return slow_path(guards_call, {pointer, pointer, pointer, pointer, llvm::Type::getInt64Ty(context_), pointer});
}

llvm::FunctionCallee emitter::stream() {
  llvm::Type* const pointer = llvm::PointerType::getUnqual(context_);
  llvm::Type* const word = llvm::Type::getInt64Ty(context_);
  return slow_path(stream_call, {pointer, word, word, pointer, pointer, pointer});
}

llvm::FunctionCallee emitter::column() {
  llvm::Type* const pointer = llvm::PointerType::getUnqual(context_);
  llvm::Type* const word = llvm::Type::getInt64Ty(context_);
  return slow_path(column_call, {pointer, word, word, word, pointer});
}

llvm::FunctionCallee emitter::gather() {
  llvm::Type* const pointer = llvm::PointerType::getUnqual(context_);
  llvm::Type* const word = llvm::Type::getInt64Ty(context_);
  return slow_path(gather_call, {pointer, pointer, word, word, word, pointer});
}

llvm::FunctionCallee emitter::look() {
  llvm::Type* const word = llvm::Type::getInt64Ty(context_);
  return slow_path(look_call, {word, word, word, word, llvm::PointerType::getUnqual(context_)}, word);
}

llvm::FunctionCallee emitter::ahead() {
  llvm::Type* const pointer = llvm::PointerType::getUnqual(context_);
  return slow_path(ahead_call, {pointer, llvm::Type::getInt64Ty(context_), pointer});
}

llvm::FunctionCallee emitter::library_call(const char* name, llvm::Type* second) {
  llvm::Type* const pointer = llvm::PointerType::getUnqual(context_);
  llvm::FunctionType* const type = llvm::FunctionType::get(llvm::Type::getVoidTy(context_),
                                                           {pointer, second, llvm::Type::getInt64Ty(context_)}, false);
  llvm::FunctionCallee called = module_.getOrInsertFunction(name, type);
  auto* const function = llvm::cast<llvm::Function>(called.getCallee());
  function->setVisibility(llvm::GlobalValue::HiddenVisibility);
  function->setDSOLocal(true);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  return called;
}

llvm::FunctionCallee emitter::copy() {
  return library_call(copy_call, llvm::PointerType::getUnqual(context_));
}

llvm::FunctionCallee emitter::move() {
  return library_call(move_call, llvm::PointerType::getUnqual(context_));
}

llvm::FunctionCallee emitter::set() {
  return library_call(set_call, llvm::Type::getInt32Ty(context_));
}

// Another thread may write the state. It is not loaded by an atomic load, which the compiler would not fuse with the
// comparison: any byte that is read is harmless.
llvm::Value* emitter::state_of(llvm::IRBuilder<>& at, llvm::Value* address) {
  llvm::Value* const page = at.CreateLShr(at.CreatePtrToInt(address, at.getInt64Ty()), page_shift);
  llvm::Value* const index = at.CreateAnd(page, load(at, field::mask));
  llvm::Value* const state_at = at.CreatePtrAdd(load(at, field::states), index);
  return at.CreateLoad(at.getInt8Ty(), state_at);
}

llvm::SmallVector<touch, 2> touches_of(llvm::Instruction& access) {
  llvm::SmallVector<touch, 2> found;
  if (access.isVolatile()) return found;
  if (llvm::Value* const pointer = llvm::getLoadStorePointerOperand(&access)) {
    const llvm::TypeSize bytes = access.getDataLayout().getTypeStoreSize(llvm::getLoadStoreType(&access));
    found.push_back({&access, pointer, bytes.isScalable() ? 0 : bytes.getFixedValue(), access.mayWriteToMemory()});
  }
  auto* const call = llvm::dyn_cast<llvm::MemIntrinsic>(&access);
  const auto* const length = call == nullptr ? nullptr : llvm::dyn_cast<llvm::ConstantInt>(call->getLength());
  if (length == nullptr) return found;
  const std::uint64_t bytes = length->getValue().getLimitedValue();
  found.push_back({&access, call->getRawDest(), bytes, true});
  if (auto* const transfer = llvm::dyn_cast<llvm::MemTransferInst>(call)) {
    found.push_back({&access, transfer->getRawSource(), bytes, false});
  }
  return found;
}

bool is_own(const llvm::Value* pointer) {
  const llvm::Value* object = llvm::getUnderlyingObject(pointer);
  if (const auto* const load = llvm::dyn_cast<llvm::LoadInst>(object)) {
    object = llvm::getUnderlyingObject(load->getPointerOperand());
  }
  return llvm::isa<llvm::GlobalVariable>(object) && object->getName() == shared_struct;
}

// Errs towards "it may": a needless guard costs a few instructions, a missing one a page fault. The search for the
// object goes further than LLVM's default, because every object that it does not find gets a guard. An argument passed
// by value is a copy on the stack, although its type is a pointer.
bool may_be_far(const llvm::Instruction& access, const llvm::Value* pointer, const char** why) {
  if (pointer->getType()->getPointerAddressSpace() != 0) {
    *why = "in an address space of its own";
    return false;
  }
  const llvm::Value* const object = llvm::getUnderlyingObject(pointer, 12);
  if (llvm::isa<llvm::AllocaInst>(object) || pointer->isSwiftError()) {
    *why = "on the stack";
    return false;
  }
  if (llvm::isa<llvm::Constant>(object) && !is_hot_variable(object)) {
    *why = "static";
    return false;
  }
  if (const auto* const argument = llvm::dyn_cast<llvm::Argument>(object);
      argument != nullptr && argument->hasPassPointeeByValueCopyAttr()) {
    *why = "on the stack";
    return false;
  }
  const auto* const load = llvm::dyn_cast<llvm::LoadInst>(object);
  const llvm::MDNode* const kind = load == nullptr ? nullptr : load->getMetadata(llvm::LLVMContext::MD_tbaa);
  if (kind != nullptr && kind->isTBAAVtableAccess()) {
    *why = "static";
    return false;
  }
  if (const auto* const call = llvm::dyn_cast<llvm::CallBase>(object);
      call != nullptr && call->getCalledFunction() != nullptr &&
      call->getCalledFunction()->getName() == "__cxa_begin_catch") {
    *why = "just thrown";
    return false;
  }
  if (is_said_to_be_local(access) || leads_to_local(object)) {
    *why = "said to be local";
    return false;
  }
  return true;
}

// A pointer is static itself: what it leads to is meant.
bool is_hot_variable(const llvm::Value* object) {
  const auto* const variable = llvm::dyn_cast<llvm::GlobalVariable>(object);
  return variable != nullptr && !variable->getValueType()->isPointerTy() && is_annotated(*variable, hot_mark);
}

void keep_reference(llvm::Module& module, llvm::StringRef function, llvm::Constant& address) {
  const std::string name = ("farheap.kept." + function).str();
  if (module.getNamedGlobal(name) != nullptr) return;
  auto* const kept = new llvm::GlobalVariable(module, address.getType(), /*isConstant=*/true,
                                              llvm::GlobalValue::PrivateLinkage, &address, name);
  // Of the object file. Where nothing calls what it is for, the linker may drop it with the rest.
  llvm::appendToCompilerUsed(module, {kept});
}

llvm::Value* pointer_of(llvm::Instruction& access) {
  if (auto* const update = llvm::dyn_cast<llvm::AtomicRMWInst>(&access)) return update->getPointerOperand();
  if (auto* const exchange = llvm::dyn_cast<llvm::AtomicCmpXchgInst>(&access)) return exchange->getPointerOperand();
  return llvm::getLoadStorePointerOperand(&access);
}

bool guards_arguments(const llvm::Function& function) {
  return is_annotated(function, "far_far");
}

// A function that saves all registers, as one that an interrupt may call, is compiled without vector registers: neither
// it nor a slow path would save these. One whose stack is made of parts (-fsplit-stack) has no room for a slow path.
bool is_left_alone(const llvm::Function& function) {
  return function.isDeclaration() || !is_for_us(*function.getParent()) || function.hasFnAttribute(prepared_attribute) ||
         function.hasFnAttribute(llvm::Attribute::Naked) || function.hasOptNone() || function.hasMinSize() ||
         function.hasFnAttribute("no_caller_saved_registers") || function.hasFnAttribute("split-stack") ||
         function.getCallingConv() == llvm::CallingConv::X86_INTR || is_annotated(function, local_mark) ||
         is_annotated(function, local_region_mark);
}

}  // namespace far::compiler
