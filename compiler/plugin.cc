// The plugin that clang loads by -fpass-plugin.
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Passes/PassPlugin.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Transforms/Utils/LCSSA.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
#include "marks.h"
#include "passes.h"
#include "profile.h"
#include "report.h"

namespace far::compiler {
namespace {

llvm::cl::opt<std::string> report_file("farheap-report",
                                       llvm::cl::desc("Append what Farheap's passes did to this file"));
llvm::cl::opt<std::string> profile_file("farheap-profile", llvm::cl::desc("Read where a traced program missed"));
llvm::cl::opt<bool> with_streams("farheap-streams", llvm::cl::init(true), llvm::cl::desc("Tell of walks of memory"));
llvm::cl::opt<bool> with_guards("farheap-guards", llvm::cl::init(true), llvm::cl::desc("Guard irregular accesses"));

llvm::cl::opt<unsigned> object_bytes("farheap-objects", llvm::cl::init(0),
                                     llvm::cl::desc("Read small objects without their pages, so many bytes at a time"));

void add_streams(llvm::FunctionPassManager& passes, llvm::OptimizationLevel level) {
  if (level == llvm::OptimizationLevel::O0) return;
  passes.addPass(prepared());
  if (!with_streams) return;
  passes.addPass(llvm::LoopSimplifyPass());
  passes.addPass(llvm::LCSSAPass());
  passes.addPass(streams());
}

// Each pass by itself, for `opt -passes=NAME` and the tests in tests/compiler/passes.
void name_passes(llvm::PassBuilder& to) {
  using elements = llvm::ArrayRef<llvm::PassBuilder::PipelineElement>;
  to.registerPipelineParsingCallback([](llvm::StringRef name, llvm::ModulePassManager& passes, elements) {
    if (name != "farheap-marks") return false;
    passes.addPass(marks());
    return true;
  });
  to.registerPipelineParsingCallback([](llvm::StringRef name, llvm::FunctionPassManager& passes, elements) {
    if (name == "farheap-prepared") {
      passes.addPass(prepared());
    } else if (name == "farheap-streams") {
      passes.addPass(streams());
    } else if (name == "farheap-copies") {
      passes.addPass(copies());
    } else if (name == "farheap-guards") {
      passes.addPass(guards());
    } else {
      return false;
    }
    return true;
  });
}

void add_passes(llvm::PassBuilder& to) {
  name_passes(to);
  to.registerPipelineStartEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel level) {
    if (level != llvm::OptimizationLevel::O0) {
      passes.addPass(marks());
    }
  });
  to.registerVectorizerStartEPCallback(add_streams);
  const auto guard = [](llvm::ModulePassManager& passes, llvm::OptimizationLevel level) {
    if (level == llvm::OptimizationLevel::O0) return;
    if (with_streams) passes.addPass(llvm::createModuleToFunctionPassAdaptor(copies()));
    if (with_guards) {
      llvm::FunctionPassManager place;
      place.addPass(llvm::LoopSimplifyPass());  // a guard that moves out of a loop needs a block in front of it
      place.addPass(guards());
      passes.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(place)));
    }
  };
  to.registerOptimizerLastEPCallback(guard);
  // In the linker of full LTO. Its pipeline has no hook before the vectoriser, so streams go to its beginning: loops
  // have their final shape by then, since each file was simplified when it was compiled.
  to.registerFullLinkTimeOptimizationEarlyEPCallback(
      [](llvm::ModulePassManager& passes, llvm::OptimizationLevel level) {
        llvm::FunctionPassManager split;
        add_streams(split, level);
        passes.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(split)));
      });
  to.registerFullLinkTimeOptimizationLastEPCallback(guard);
}

}  // namespace

const report& chosen_report() {
  static const report chosen(report_file);
  return chosen;
}

unsigned chosen_object_bytes() {
  return object_bytes;
}

miss_profile& chosen_profile() {
  static miss_profile chosen(profile_file);
  return chosen;
}

}  // namespace far::compiler

extern "C" __attribute__((visibility("default"))) llvm::PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "farheap", "1", far::compiler::add_passes};
}
