// Pieces of code that both passes emit.
#pragma once

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "runtime_names.h"

namespace far::compiler {

// A stream of a loop, as it is told.
struct walked {
  std::int32_t step_bytes = 0;  // an iteration
  bool write = false;
  bool hot = false;
  bool overwrites = false;
};

// What an instruction accesses at one place.
struct touch {
  llvm::Instruction* access;
  llvm::Value* pointer;
  std::uint64_t bytes;  // 0: not known
  bool write;
};

// The places that a load or a store accesses, or a memcpy(), memmove() or memset() of a constant length; none of what
// is volatile.
[[nodiscard]] llvm::SmallVector<touch, 2> touches_of(llvm::Instruction& access);

class emitter {
 public:
  explicit emitter(llvm::Module& module) : module_(module), context_(module.getContext()) {}

  // A load of a field of the shared struct.
  llvm::Value* load(llvm::IRBuilder<>& at, field wanted);
  // The address of the shared struct.
  llvm::Constant* shared();
  // The struct far_hint_site of the function, which names it to `farheap trace`.
  llvm::Constant* site_of(const llvm::Function& user);
  // A new struct far_loop, for a loop of the function that looks at memory ahead of itself.
  llvm::Constant* loop_of(const llvm::Function& user);
  // The value of *has_evicted up to which such a loop does not look.
  llvm::Value* load_rest(llvm::IRBuilder<>& at, llvm::Constant* loop);
  // The struct far_walk of streams that are told together.
  llvm::Constant* walk_of(llvm::ArrayRef<walked> streams, std::uint64_t iterations, const llvm::Function& user);
  // The struct far_column of one that is reported every `rows` rows, by the first row or by the one that it is at.
  llvm::Constant* column_of(std::uint64_t row_bytes, std::uint64_t rows, bool write, bool is_here,
                            const llvm::Function& user);
  // Functions of support.c; cold, and gentle on the caller's registers.
  llvm::FunctionCallee guard(bool write);
  llvm::FunctionCallee stream();
  llvm::FunctionCallee column();
  llvm::FunctionCallee gather();
  llvm::FunctionCallee look();
  llvm::FunctionCallee ahead();
  // In place of memcpy(), memmove() and memset().
  llvm::FunctionCallee copy();
  llvm::FunctionCallee move();
  llvm::FunctionCallee set();
  llvm::FunctionCallee guards();
  llvm::FunctionCallee hot();
  // Returns what is read, as 64 bits.
  llvm::FunctionCallee read();
  // Has the program say that it reads objects, and how many bytes around them. Returns whether it did not yet.
  bool ask_for_objects(unsigned bytes);
  // The state of the address's page: above last_quiet_state if it is of the far heap, and not resident.
  llvm::Value* state_of(llvm::IRBuilder<>& at, llvm::Value* address);

 private:
  llvm::StructType* shape();
  llvm::FunctionCallee slow_path(const char* name, llvm::ArrayRef<llvm::Type*> parameters,
                                 llvm::Type* result = nullptr);
  llvm::FunctionCallee library_call(const char* name, llvm::Type* second);

  llvm::Module& module_;
  llvm::LLVMContext& context_;
};

// Whether the pointer is to the shared struct, or comes from it.
[[nodiscard]] bool is_own(const llvm::Value* pointer);

// Whether memory that the access, by way of the pointer, may refer to can be far at all. If not, `*why` says so.
[[nodiscard]] bool may_be_far(const llvm::Instruction& access, const llvm::Value* pointer, const char** why);

// The characters of a constant such as an annotation names its text and its file by; none if it is no such constant.
[[nodiscard]] llvm::StringRef text_of(const llvm::Value* annotation);

// Whether llvm.global.annotations has the text for the function or variable.
[[nodiscard]] bool is_annotated(const llvm::GlobalObject& object, llvm::StringRef annotation);

// Whether it is a FAR_HOT variable whose own memory is meant: no pointer.
[[nodiscard]] bool is_hot_variable(const llvm::Value* object);

// Keeps the module's reference to a function that the support calls in the program's place. The support does so weakly,
// which alone links nothing of a static library.
void keep_reference(llvm::Module& module, llvm::StringRef function, llvm::Constant& address);

// The address that the instruction accesses; null if it is no access.
[[nodiscard]] llvm::Value* pointer_of(llvm::Instruction& access);

// Whether the function is FAR_FAR (far/local.h): its callers may not have used what they pass to it.
[[nodiscard]] bool guards_arguments(const llvm::Function& function);

// Whether the slow paths exist for the module: of programs of 64 bits on Linux. A build may compile other parts with
// the same compiler: for a GPU, a virtual machine of the kernel, the kernel itself, a boot loader, or Windows.
[[nodiscard]] bool is_for_us(const llvm::Module& module);

// Whether the function is to be left alone: far_local (far/local.h), naked, without optimization, to be as small as
// possible, for callers that save no registers, with a stack in parts, not for x86-64, or because it has code of the
// passes already.
[[nodiscard]] bool is_left_alone(const llvm::Function& function);

}  // namespace far::compiler
