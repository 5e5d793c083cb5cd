#include "preload/fault_mode_choice.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace far::preload {
namespace {

using pager::fault_mode;

platform::kernel_features everything() {
  platform::kernel_features features;
  for (const platform::feature_description& feature : platform::known_features()) features.*feature.member = true;
  return features;
}

TEST(FaultModeChoice, WhatIsAskedForWhereItIsThere) {
  for (const fault_mode asked : {fault_mode::thread, fault_mode::in_line}) {
    const result<fault_mode_choice> choice = choose_fault_mode(everything(), asked);
    ASSERT_TRUE(choice.ok());
    EXPECT_EQ(choice.value().mode, asked);
    EXPECT_EQ(choice.value().why_not_asked, nullptr);
  }
  EXPECT_EQ(choose_fault_mode(everything(), std::nullopt).value().mode, fault_mode::in_line);
}

TEST(FaultModeChoice, AnOrdinaryUserResolvesInline) {
  platform::kernel_features features = everything();
  features.userfaultfd_kernel_faults = false;
  const result<fault_mode_choice> choice = choose_fault_mode(features, std::nullopt);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice.value().mode, fault_mode::in_line);
  EXPECT_EQ(choice.value().why_not_asked, nullptr);
  const result<fault_mode_choice> other = choose_fault_mode(features, fault_mode::thread);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(std::string(other.value().why_not_asked).find("vm.unprivileged_userfaultfd=1"), std::string::npos);
}

TEST(FaultModeChoice, AThreadResolvesWhereTheProgramCannot) {
  for (bool platform::kernel_features::* const missing :
       {&platform::kernel_features::sigbus, &platform::kernel_features::syscall_user_dispatch}) {
    platform::kernel_features features = everything();
    features.*missing = false;
    const result<fault_mode_choice> choice = choose_fault_mode(features, fault_mode::in_line);
    ASSERT_TRUE(choice.ok());
    EXPECT_EQ(choice.value().mode, fault_mode::thread);
    EXPECT_NE(choice.value().why_not_asked, nullptr);
    const result<fault_mode_choice> not_asked = choose_fault_mode(features, std::nullopt);
    ASSERT_TRUE(not_asked.ok());
    EXPECT_EQ(not_asked.value().mode, fault_mode::thread);
    EXPECT_EQ(not_asked.value().why_not_asked, nullptr);
  }
}

TEST(FaultModeChoice, WhereDevicesWriteToPagesThatLeaveTheProgramResolvesInline) {
  platform::kernel_features features = everything();
  features.move = false;
  result<fault_mode_choice> choice = choose_fault_mode(features, std::nullopt);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice.value().mode, fault_mode::in_line);
  EXPECT_EQ(choice.value().why_not_asked, nullptr);
  EXPECT_EQ(choice.value().risk, nullptr);
  features.move = true;
  features.pagemap = false;  // then pages are not moved, either
  EXPECT_EQ(choose_fault_mode(features, std::nullopt).value().mode, fault_mode::in_line);
  choice = choose_fault_mode(features, fault_mode::thread);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice.value().mode, fault_mode::thread);
  EXPECT_NE(std::string(choice.value().risk).find("O_DIRECT"), std::string::npos);
  features.syscall_user_dispatch = false;
  choice = choose_fault_mode(features, std::nullopt);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice.value().mode, fault_mode::thread);
  EXPECT_NE(choice.value().risk, nullptr);
}

TEST(FaultModeChoice, NoFarMemoryWithoutAnyMode) {
  platform::kernel_features features = everything();
  features.userfaultfd = false;
  features.userfaultfd_error_code = ENOSYS;
  EXPECT_EQ(choose_fault_mode(features, std::nullopt).error().code, ENOSYS);
  features.userfaultfd_error_code = EPERM;
  EXPECT_EQ(choose_fault_mode(features, std::nullopt).error().code, EPERM);

  features = everything();
  features.userfaultfd_kernel_faults = features.syscall_user_dispatch = false;
  EXPECT_FALSE(choose_fault_mode(features, fault_mode::thread).ok());
  EXPECT_FALSE(choose_fault_mode(features, fault_mode::in_line).ok());

  features = everything();
  features.move = features.write_protect = false;
  EXPECT_FALSE(choose_fault_mode(features, std::nullopt).ok());
}

}  // namespace
}  // namespace far::preload
